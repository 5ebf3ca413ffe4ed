/** The start of a screen. */

/**
 * Returns a screen once it has started. One that cannot is closed: its timers, streams and keys must
 * not outlive the message that stands in its place.
 * @template {{ close?: () => void }} T
 * @param {T} screen @param {Promise<unknown>} start @returns {Promise<T>}
 */
export async function started(screen, start) {
  try {
    await start;
  } catch (problem) {
    screen.close?.();
    throw problem;
  }
  return screen;
}
