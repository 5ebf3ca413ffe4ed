/* Many clients in one thread: each asks, reads its answer to the end, checks it, and asks again.
 *
 *   client PORT REQUEST CONNECTIONS ANSWERS TOKENS MARK LAST STAGGER LIMIT
 *
 * REQUEST      a file with one whole HTTP request
 * ANSWERS      how many in all; 0: one stream a connection, held open after its first token
 * TOKENS       how many each answer must have: " tok00000", " tok00001" and so on, in order
 * MARK         what the data of an event that brings a token contains; empty: the answer is no stream
 * LAST         what the data of a stream's last event contains
 * STAGGER      microseconds between the first requests of two connections
 * LIMIT        seconds for all of it
 *
 * Prints one line of JSON. Held streams stay open until standard input ends.
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
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define ROOM (1 << 18)

enum state { HEAD, SIZED, CHUNK_SIZE, CHUNK, CHUNK_END, UNTIL_CLOSE };

struct connection {
    int fd;
    enum state state;
    int status, closes, answered; /* answered: by this connection, whatever came of it */
    char in[ROOM];                /* as received */
    size_t filled;
    char line[ROOM]; /* the body: its unfinished line, or all of it when it is no stream */
    size_t held;
    size_t left; /* of the body, or of its chunk */
    int tokens, deltas, events, last, wrong;
    uint64_t asked, first;
};

static int loop, port, to_answer, tokens_expected;
static char *request;
static size_t request_size;
static const char *mark, *last;
static size_t mark_size, last_size;

static int asked, answered, failed, holding, reconnects;
static long long tokens, deltas, events, bytes;
static int fewest_events = -1, most_events;
static double *firsts, *wholes;
static int first_count, whole_count;
static char complaint[512];

static uint64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000ull + t.tv_nsec;
}

static void fail(struct connection *c, const char *why) {
    if (!failed++) {
        snprintf(complaint, sizeof complaint, "%s: status %d, %d of %d tokens, %.200s", why, c->status, c->tokens,
                 tokens_expected, c->line);
        for (char *at = complaint; *at; at++)
            if (*at < ' ' || *at == '"' || *at == '\\' || *at & 0x80) *at = '.';
    }
}

static void start(struct connection *c);

static void reconnect(struct connection *c) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int one = 1;
    if (c->fd >= 0) close(c->fd);
    c->fd = socket(AF_INET, SOCK_STREAM, 0);
    c->answered = 0;
    if (connect(c->fd, (void *)&at, sizeof at)) {
        perror("connect");
        exit(2);
    }
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    struct epoll_event e = {EPOLLIN, {.ptr = c}};
    epoll_ctl(loop, EPOLL_CTL_ADD, c->fd, &e);
}

static void send_request(struct connection *c) {
    c->state = HEAD;
    c->status = c->closes = c->tokens = c->deltas = c->events = c->last = c->wrong = 0;
    c->filled = c->held = 0;
    c->line[0] = 0;
    c->first = 0;
    c->asked = now();
    /* Blocking, and small: it fits into the socket's buffer. */
    if (send(c->fd, request, request_size, MSG_NOSIGNAL) != (ssize_t)request_size) errno = 0;
}

static void start(struct connection *c) {
    if (to_answer && asked >= to_answer) return;
    asked++;
    send_request(c);
}

/* Counts the tokens of a text; each must be the next one. */
static void count_tokens(struct connection *c, const char *at, size_t size) {
    const char *end = at + size;
    while ((at = memmem(at, end - at, " tok", 4)) && end - at >= 9) {
        int n = 0;
        for (int i = 4; i < 9; i++) n = n * 10 + at[i] - '0';
        if (n != c->tokens) c->wrong++;
        c->tokens++;
        at += 9;
    }
}

static void read_line(struct connection *c, const char *line, size_t size) {
    if (size < 5 || memcmp(line, "data:", 5)) return;
    c->events++;
    if (memmem(line, size, mark, mark_size)) {
        int before = c->tokens;
        count_tokens(c, line, size);
        if (c->tokens > before) c->deltas++;
        if (!c->first && c->tokens) c->first = now(), holding++;
    }
    if (memmem(line, size, last, last_size)) c->last++;
}

static void read_body(struct connection *c, const char *at, size_t size) {
    bytes += size;
    while (size) {
        const char *end = mark_size ? memchr(at, '\n', size) : NULL;
        size_t n = end ? (size_t)(end - at) : size;
        if (end && !c->held) {
            read_line(c, at, n);
        } else {
            /* Of a longer line only the beginning is looked at: it says which event it is. */
            size_t kept = c->held + n < ROOM ? n : ROOM - 1 - c->held;
            memcpy(c->line + c->held, at, kept);
            c->line[c->held += kept] = 0;
            if (end) read_line(c, c->line, c->held), c->held = 0;
        }
        n += end ? 1 : 0;
        at += n;
        size -= n;
    }
}

/* An answer is over: checks it, and asks again. */
static void finish(struct connection *c, const char *cut) {
    uint64_t end = now();
    if (!mark_size) {
        count_tokens(c, c->line, c->held);
        c->first = end;
        c->deltas = c->tokens;
        c->last = 1;
    }
    answered++;
    c->answered++;
    if (cut) fail(c, cut);
    else if (c->status != 200) fail(c, "not answered");
    else if (c->wrong) fail(c, "tokens out of order");
    else if (c->tokens != tokens_expected) fail(c, "tokens lost or doubled");
    else if (c->last != 1) fail(c, "no last event, or several");
    else {
        tokens += c->tokens;
        deltas += c->deltas;
        events += c->events;
        if (fewest_events < 0 || c->events < fewest_events) fewest_events = c->events;
        if (c->events > most_events) most_events = c->events;
        firsts[first_count++] = (c->first - c->asked) / 1e6;
        wholes[whole_count++] = (end - c->asked) / 1e6;
    }
    if (to_answer && asked >= to_answer) return;
    if (c->closes || cut) reconnects++, reconnect(c);
    start(c);
}

static int has(const char *line, const char *end, const char *name, const char *value) {
    size_t n = strlen(name);
    if ((size_t)(end - line) < n || strncasecmp(line, name, n)) return 0;
    for (line += n; line + strlen(value) <= end; line++)
        if (!strncasecmp(line, value, strlen(value))) return 1;
    return 0;
}

/* Returns how many bytes the head took; 0: it is not whole yet. */
static size_t read_head(struct connection *c, const char *at, size_t size) {
    const char *end = memmem(at, size, "\r\n\r\n", 4), *line = at;
    if (!end) return 0;
    c->state = UNTIL_CLOSE;
    c->status = atoi(at + 9);
    while ((line = memmem(line, end - line + 2, "\r\n", 2)) && line < end) {
        line += 2;
        const char *stop = memmem(line, end + 2 - line, "\r\n", 2);
        if (has(line, stop, "content-length:", "")) c->state = SIZED, c->left = strtoul(line + 15, NULL, 10);
        if (has(line, stop, "transfer-encoding:", "chunked")) c->state = CHUNK_SIZE;
        if (has(line, stop, "connection:", "close")) c->closes = 1;
    }
    return end + 4 - at;
}

/* Takes what it can from the buffer. Returns 1 when the answer is over. */
static int parse(struct connection *c) {
    size_t at = 0;
    int over = 0;
    while (!over) {
        size_t n = c->filled - at;
        char *in = c->in + at, *end;
        if (c->state == HEAD) {
            if (!(n = read_head(c, in, n))) break;
            over = c->state == SIZED && !c->left;
        } else if (c->state == CHUNK_SIZE) {
            if (!(end = memchr(in, '\n', n))) break;
            c->left = strtoul(in, NULL, 16);
            n = end + 1 - in;
            c->state = c->left ? CHUNK : CHUNK_END;
        } else if (c->state == CHUNK_END) { /* after a chunk; after the last one, that is the end */
            if (n < 2) break;
            n = 2;
            over = !c->left;
            c->left = 1;
            c->state = CHUNK_SIZE;
        } else {
            if (!n) break;
            if (c->state != UNTIL_CLOSE && n > c->left) n = c->left;
            read_body(c, in, n);
            c->left -= n;
            over = c->state == SIZED && !c->left;
            if (c->state == CHUNK && !c->left) c->state = CHUNK_END, c->left = 1;
        }
        at += n;
    }
    memmove(c->in, c->in + at, c->filled -= at);
    return over;
}

static void receive(struct connection *c) {
    ssize_t n = recv(c->fd, c->in + c->filled, ROOM - c->filled, MSG_DONTWAIT);
    if (n < 0 && errno == EAGAIN) return;
    if (n > 0) {
        c->filled += n;
        if (parse(c)) finish(c, NULL);
    } else if (c->state == HEAD && !c->filled && c->answered) {
        reconnects++; /* an idle connection was closed as we asked: HTTP allows that; ask anew */
        reconnect(c);
        send_request(c);
    } else {
        epoll_ctl(loop, EPOLL_CTL_DEL, c->fd, NULL);
        c->closes = 1;
        finish(c, c->state == UNTIL_CLOSE ? NULL : "cut off");
    }
}

static void print_list(const char *name, const double *list, int count) {
    printf(",\"%s\":[", name);
    for (int i = 0; i < count; i++) printf(i ? ",%.3f" : "%.3f", list[i]);
    printf("]");
}

static void report(double seconds) {
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    double cpu = used.ru_utime.tv_sec + used.ru_stime.tv_sec + (used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
    printf("{\"answers\":%d,\"failed\":%d,\"complaint\":\"%s\",\"reconnects\":%d,\"tokens\":%lld,\"deltas\":%lld,"
           "\"events\":%lld,\"bytes\":%lld,\"fewest_events\":%d,\"most_events\":%d,\"seconds\":%.6f,\"cpu\":%.6f",
           answered, failed, complaint, reconnects, tokens, deltas, events, bytes, fewest_events, most_events, seconds,
           cpu);
    print_list("first", firsts, first_count);
    print_list("whole", wholes, whole_count);
    printf("}\n");
    fflush(stdout);
}

static void read_request(const char *path) {
    FILE *file = fopen(path, "rb");
    if (!file) perror(path), exit(2);
    request = malloc(1 << 20);
    request_size = fread(request, 1, 1 << 20, file);
    fclose(file);
}

int main(int count, char **words) {
    if (count != 10) return fprintf(stderr, "client: 9 arguments, see the source\n"), 2;
    int connections = atoi(words[3]), started = 0;
    port = atoi(words[1]);
    read_request(words[2]);
    to_answer = atoi(words[4]);
    tokens_expected = atoi(words[5]);
    mark_size = strlen(mark = words[6]);
    last_size = strlen(last = words[7]);
    uint64_t stagger = strtoull(words[8], NULL, 10) * 1000, begin = now();
    uint64_t limit = begin + strtoull(words[9], NULL, 10) * 1000000000ull;
    firsts = calloc(to_answer + 1, sizeof *firsts);
    wholes = calloc(to_answer + 1, sizeof *wholes);
    loop = epoll_create1(0);
    struct connection *all = calloc(connections, sizeof *all);
    for (int i = 0; i < connections; i++) all[i].fd = -1, reconnect(&all[i]);
    begin = now();
    while (to_answer ? answered < to_answer : holding < connections && !failed) {
        struct epoll_event ready[256];
        while (started < connections && now() >= begin + started * stagger) start(&all[started++]);
        int n = epoll_wait(loop, ready, 256, started < connections ? 1 : 1000);
        for (int i = 0; i < n; i++) receive(ready[i].data.ptr);
        if (now() > limit) {
            failed += (to_answer ? to_answer - answered : connections - holding);
            if (!*complaint) snprintf(complaint, sizeof complaint, "no end within the limit");
            break;
        }
    }
    report((now() - begin) / 1e9);
    if (!to_answer)
        while (getchar() != EOF) continue;
    return 0;
}
