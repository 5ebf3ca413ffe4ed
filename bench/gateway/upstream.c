/* An upstream that costs next to nothing: Chat Completions over HTTP/1.1, canned, one thread.
 *
 * The model's name says how it answers, and with how many tokens:
 *   burst-400     the whole stream as fast as the socket takes it
 *   paced-100-20  the first token at once, then one event every 20 ms, each in a write of its own
 *   idle          the first token, then silence until the other side goes
 *   plain-100     one body, no stream
 *   tool-100      a stream whose tokens are the arguments of a call, 20 bytes each
 * Token n is the text " tok" and n in five digits, so that a client can tell whether one is missing.
 * Prints its port. Ends when its standard input does.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#define ROOM (1 << 20) /* the longest request */
#define MOST 4096      /* connections */

/* A canned answer: all its bytes, and where each event ends. */
struct script {
    char model[64];
    char *bytes;
    size_t size, *ends;
    int events;
    uint64_t interval; /* ns between events; 0: none */
    int stops_after;   /* events, then silence; 0: it goes to the end */
    struct script *next;
};

struct connection {
    int fd, slot, waits_for_room;
    char *in;
    size_t filled;
    struct script *script; /* what is being answered */
    size_t sent, allowed;  /* bytes of it */
    int event;             /* the next one to be allowed */
    uint64_t due;          /* when; 0: no timer */
};

static int loop, timer;
static struct script *scripts;
static struct connection *paced[MOST];
static int paced_count;

static uint64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000ull + t.tv_nsec;
}

static void add(struct script *s, const char *text) {
    size_t size = strlen(text);
    s->bytes = realloc(s->bytes, s->size + size);
    memcpy(s->bytes + s->size, text, size);
    s->size += size;
}

static void add_event(struct script *s, const char *payload) {
    char chunk[1024];
    snprintf(chunk, sizeof chunk, "%zx\r\ndata: %s\n\n\r\n", strlen(payload) + 8, payload);
    add(s, chunk);
    s->ends = realloc(s->ends, (s->events + 1) * sizeof *s->ends);
    s->ends[s->events++] = s->size;
}

#define OPENING "{\"id\":\"chatcmpl-Bq7uJXz2mYk0\",\"object\":\"chat.completion%s\",\"created\":1790000000,\"model\":\"bench-model\",\"system_fingerprint\":\"fp_44709d6fcb\",\"choices\":["
#define USAGE "{\"prompt_tokens\":31,\"completion_tokens\":%d,\"total_tokens\":%d}}"

static void add_choice(struct script *s, const char *delta, const char *reason) {
    char payload[512];
    snprintf(payload, sizeof payload,
             OPENING "{\"index\":0,\"delta\":%s,\"finish_reason\":%s}]}", ".chunk", delta, reason);
    add_event(s, payload);
}

#define HEAD \
    "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-cache\r\n" \
    "Transfer-Encoding: chunked\r\n\r\n"

static void add_end(struct script *s, int tokens, const char *reason) {
    char text[512];
    add_choice(s, "{}", reason);
    snprintf(text, sizeof text, OPENING "],\"usage\":" USAGE, ".chunk", tokens, tokens + 31);
    add_event(s, text);
    add_event(s, "[DONE]");
    add(s, "0\r\n\r\n");
    s->ends[s->events - 1] = s->size;
}

static void write_stream(struct script *s, int tokens) {
    char text[256];
    add(s, HEAD);
    add_choice(s, "{\"role\":\"assistant\",\"content\":\"\"}", "null");
    for (int n = 0; n < tokens; n++) {
        snprintf(text, sizeof text, "{\"content\":\" tok%05d\"}", n);
        add_choice(s, text, "null");
    }
    add_end(s, tokens, "\"stop\"");
}

#define CALL "{\"tool_calls\":[{\"index\":0,%s\"function\":{%s\"arguments\":\"%s\"}}]}"

static void add_arguments(struct script *s, const char *id, const char *name, const char *text) {
    char delta[256];
    snprintf(delta, sizeof delta, CALL, id, name, text);
    add_choice(s, delta, "null");
}

static void write_call(struct script *s, int tokens) {
    char text[32];
    add(s, HEAD);
    add_arguments(s, "\"id\":\"call_1\",\"type\":\"function\",", "\"name\":\"write\",", "{\\\"text\\\":\\\"");
    for (int n = 0; n < tokens; n++) {
        snprintf(text, sizeof text, " tok%05d, and so on", n);
        add_arguments(s, "", "", text);
    }
    add_arguments(s, "", "", "\\\"}");
    add_end(s, tokens, "\"tool_calls\"");
}

static void write_body(struct script *s, int tokens) {
    char *text = malloc(tokens * 9 + 1024), *at = text, head[128];
    at += sprintf(at, OPENING "{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":\"", "");
    for (int n = 0; n < tokens; n++) at += sprintf(at, " tok%05d", n);
    at += sprintf(at, "\"},\"finish_reason\":\"stop\"}],\"usage\":" USAGE, tokens, tokens + 31);
    snprintf(head, sizeof head, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n\r\n",
             (size_t)(at - text));
    add(s, head);
    add(s, text);
    free(text);
}

static struct script *script_of(const char *model) {
    struct script *s;
    int tokens = 0, interval = 0;
    for (s = scripts; s; s = s->next)
        if (!strcmp(s->model, model)) return s;
    s = calloc(1, sizeof *s);
    snprintf(s->model, sizeof s->model, "%s", model);
    if (sscanf(model, "burst-%d", &tokens) == 1) {
        write_stream(s, tokens);
    } else if (sscanf(model, "paced-%d-%d", &tokens, &interval) == 2) {
        write_stream(s, tokens);
        s->interval = interval * 1000000ull;
    } else if (sscanf(model, "tool-%d", &tokens) == 1) {
        write_call(s, tokens);
    } else if (sscanf(model, "plain-%d", &tokens) == 1) {
        write_body(s, tokens);
    } else if (!strcmp(model, "idle")) {
        write_stream(s, 2);
        s->stops_after = 2;
    } else {
        add(s, "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n");
    }
    s->next = scripts;
    return scripts = s;
}

static void leave_timer(struct connection *c) {
    if (c->due) {
        paced[c->slot] = paced[--paced_count];
        paced[c->slot]->slot = c->slot;
        c->due = 0;
    }
}

static void drop(struct connection *c) {
    leave_timer(c);
    close(c->fd);
    free(c->in);
    free(c);
}

static void want(struct connection *c, int room) {
    if (c->waits_for_room == room) return;
    c->waits_for_room = room;
    struct epoll_event e = {EPOLLIN | (room ? EPOLLOUT : 0), {.ptr = c}};
    epoll_ctl(loop, EPOLL_CTL_MOD, c->fd, &e);
}

/* Writes what is allowed. Returns 0 when the connection is gone. */
static int flush(struct connection *c) {
    while (c->sent < c->allowed) {
        ssize_t n = send(c->fd, c->script->bytes + c->sent, c->allowed - c->sent, MSG_NOSIGNAL);
        if (n < 0 && errno == EAGAIN) return want(c, 1), 1;
        if (n < 0) return 0;
        c->sent += n;
    }
    want(c, 0);
    return 1;
}

static int answer(struct connection *c) {
    struct script *s = c->script;
    c->sent = 0;
    if (!s->interval && !s->stops_after) {
        c->allowed = s->size;
        return flush(c);
    }
    for (c->event = 0; c->event < 2; c->event++) { /* the role, and the first token */
        c->allowed = s->ends[c->event];
        if (!flush(c)) return 0;
    }
    if (s->interval && paced_count < MOST) {
        c->due = now() + s->interval;
        c->slot = paced_count;
        paced[paced_count++] = c;
    }
    return 1;
}

/* Finish, usage and the end mark go with the last tick. */
static int tick(struct connection *c) {
    struct script *s = c->script;
    if (c->event == s->events - 3) {
        leave_timer(c);
        c->allowed = s->size;
    } else {
        c->allowed = s->ends[c->event++];
        c->due += s->interval;
    }
    return flush(c);
}

static const char *find(const char *in, size_t size, const char *what) {
    return memmem(in, size, what, strlen(what));
}

/* The model without the name of an upstream before it. */
static void read_model(const char *body, size_t size, char *model, size_t room) {
    const char *at = find(body, size, "\"model\""), *end = body + size;
    size_t n = 0;
    if (at) {
        for (at += 7; at < end && *at != '"'; at++) continue;
        for (at++; at < end && *at != '"' && n + 1 < room; at++) {
            if (*at == '/') n = 0;
            else model[n++] = *at;
        }
    }
    model[n] = 0;
}

/* Takes the next whole request out of the buffer. Returns 0 when the connection is gone. */
static int take(struct connection *c) {
    char model[64];
    const char *end = c->filled ? find(c->in, c->filled, "\r\n\r\n") : NULL;
    if (!end || (c->script && c->sent < c->script->size)) return 1;
    size_t head = end + 4 - c->in, body = 0;
    for (const char *line = c->in; line && line < end; line = find(line, end + 2 - line, "\r\n")) {
        line += *line == '\r' ? 2 : 0;
        if (line < end && !strncasecmp(line, "content-length:", 15)) body = strtoul(line + 15, NULL, 10);
    }
    if (c->filled < head + body) return 1;
    read_model(c->in + head, body, model, sizeof model);
    memmove(c->in, c->in + head + body, c->filled -= head + body);
    c->script = script_of(model);
    return answer(c);
}

static int receive(struct connection *c) {
    ssize_t n = recv(c->fd, c->in + c->filled, ROOM - c->filled, 0);
    if (n < 0 && errno == EAGAIN) return 1;
    if (n <= 0) return 0;
    c->filled += n;
    return take(c);
}

static void accept_all(int listener) {
    int fd, one = 1;
    while ((fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK)) >= 0) {
        struct connection *c = calloc(1, sizeof *c);
        c->fd = fd;
        c->in = malloc(ROOM);
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        struct epoll_event e = {EPOLLIN, {.ptr = c}};
        epoll_ctl(loop, EPOLL_CTL_ADD, fd, &e);
    }
}

static void run_timers(void) {
    uint64_t count, time = now();
    if (read(timer, &count, sizeof count) < 0) return;
    for (int i = paced_count - 1; i >= 0; i--) /* backwards: one that leaves is replaced by the last */
        if (paced[i]->due <= time) {
            struct connection *c = paced[i];
            if (!tick(c)) leave_timer(c), shutdown(c->fd, SHUT_RDWR);
        }
}

static void arm(void) {
    static uint64_t armed;
    uint64_t first = 0;
    for (int i = 0; i < paced_count; i++)
        if (!first || paced[i]->due < first) first = paced[i]->due;
    if (first == armed) return;
    struct itimerspec at = {{0, 0}, {first / 1000000000ull, first % 1000000000ull}};
    timerfd_settime(timer, TFD_TIMER_ABSTIME, &at, NULL);
    armed = first;
}

int main(void) {
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), listener_mark, timer_mark, input_mark;
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof at;
    if (bind(listener, (void *)&at, size) || listen(listener, 1024)) return perror("upstream"), 1;
    getsockname(listener, (void *)&at, &size);
    printf("%d\n", ntohs(at.sin_port));
    fflush(stdout);
    loop = epoll_create1(0);
    timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
    struct epoll_event marks[] = {
        {EPOLLIN, {.ptr = &listener_mark}}, {EPOLLIN, {.ptr = &timer_mark}}, {EPOLLIN, {.ptr = &input_mark}}};
    epoll_ctl(loop, EPOLL_CTL_ADD, listener, &marks[0]);
    epoll_ctl(loop, EPOLL_CTL_ADD, timer, &marks[1]);
    epoll_ctl(loop, EPOLL_CTL_ADD, 0, &marks[2]);
    for (;;) {
        struct epoll_event ready[256];
        int n = epoll_wait(loop, ready, 256, -1);
        for (int i = 0; i < n; i++) {
            struct connection *c = ready[i].data.ptr;
            if ((void *)c == &listener_mark) accept_all(listener);
            else if ((void *)c == &timer_mark) run_timers();
            else if ((void *)c == &input_mark) return 0;
            else if (ready[i].events & EPOLLOUT && !(flush(c) && take(c))) drop(c);
            else if (ready[i].events & ~EPOLLOUT && !receive(c)) drop(c);
        }
        arm();
    }
}
