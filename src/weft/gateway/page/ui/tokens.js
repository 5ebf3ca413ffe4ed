/** Markdown as tokens, in bounded time and depth, whatever a model writes. */

import { Lexer } from "../vendor/marked.js";

/** Characters of a paragraph that is searched for emphasis and links: that can take quadratic time. */
const MAX_INLINE = 10_000;
/** Levels of nested quotes and lists. */
const MAX_DEPTH = 20;

const asText = (text) => ({ type: "text", raw: text, text });

class BoundedLexer extends Lexer {
  #depth = 0;

  blockTokens(text, tokens = [], ...more) {
    if (this.#depth === MAX_DEPTH) {
      tokens.push(asText(text));
      return tokens;
    }
    this.#depth++;
    const found = super.blockTokens(text, tokens, ...more);
    this.#depth--;
    return found;
  }

  inlineTokens(text, tokens = []) {
    if (text.length <= MAX_INLINE) return super.inlineTokens(text, tokens);
    tokens.push(asText(text));
    return tokens;
  }
}

/** Returns the tokens of a text. What is too long or nested too deep is one token of text. */
export function tokensOf(text) {
  return new BoundedLexer().lex(text);
}
