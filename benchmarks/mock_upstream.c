/* A mock of an OpenAI-compatible server that holds many thousands of connections on one thread.
 *
 *   mock_upstream PORT MIN_MS MAX_MS REPLY_BYTES [ERROR_RATE] [SEED]
 *
 * PORT 0 chooses a free one; "PORT n" is printed once it listens on 127.0.0.1. Every POST below /v1/ is answered
 * after a delay drawn evenly from MIN_MS to MAX_MS by a reply of about REPLY_BYTES; the share ERROR_RATE of them
 * by a 500. GET /v1/models, /health and /stats answer at once. Where standard input is a pipe, its end ends the mock.
 * Delays are kept in a wheel of one slot a millisecond. Needs Linux (epoll).
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { SLOTS = 65536, HEAD_BYTES = 16384, VARIANTS = 64, EVENTS = 1024, LONGEST_DELAY_MS = 60000 };

typedef struct { char *bytes; size_t size; } Text;

typedef struct Connection {
    int fd;
    int pending;                        /* a request was read whole and waits for its delay */
    int writing;                        /* a reply is only partly written */
    uint64_t body_left;                 /* bytes of the request's body still to be read */
    int in_body;
    int keeps;                          /* keep the connection after this reply */
    Text due;                           /* the reply that will be sent */
    Text own;                           /* a reply made for this request alone, to be freed */
    size_t sent;
    char *input;                        /* bytes read and not yet understood; NULL while there are none */
    size_t held;
    uint32_t watched;
    struct Connection *next, **link;    /* place in the wheel */
} Connection;

static Connection *wheel[SLOTS];
static uint64_t occupied[SLOTS / 64];
static uint64_t wheel_ms;               /* every slot before this millisecond was served */
static uint64_t waiting;                /* entries in the wheel */
static int epoll_fd, delay_min, delay_max;
static double error_rate;
static uint64_t random_state;
static Text chat[VARIANTS], completion, embedding, failure, models, healthy, unknown, malformed;

static uint64_t requests, failures, connections, most_connections, in_flight, most_in_flight;
static double in_flight_seconds, counted_until, started;

static double now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static uint64_t now_ms(void) { return (uint64_t)(now_s() * 1000.0); }

static uint64_t draw(void) {            /* xorshift64* */
    random_state ^= random_state >> 12;
    random_state ^= random_state << 25;
    random_state ^= random_state >> 27;
    return random_state * 2685821657736338717ULL;
}

static void *must(void *p) {
    if (!p) { perror("memory"); exit(1); }
    return p;
}

static void count_in_flight(int change) {
    double t = now_s();
    in_flight_seconds += (double)in_flight * (t - counted_until);
    counted_until = t;
    in_flight += (uint64_t)(int64_t)change;
    if (in_flight > most_in_flight) most_in_flight = in_flight;
}

/* ---- replies ---------------------------------------------------------------------------------------------- */

static Text http_text(const char *status, const char *body, size_t size) {
    Text t;
    t.bytes = must(malloc(size + 256));
    int head = snprintf(t.bytes, 256,
                        "HTTP/1.1 %s\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n"
                        "Server: mock\r\n\r\n", status, size);
    memcpy(t.bytes + head, body, size);
    t.size = (size_t)head + size;
    return t;
}

static Text json_text(const char *status, const char *body) { return http_text(status, body, strlen(body)); }

static const char *WORDS[] = {
    "the", "night", "batch", "answers", "slowly", "river", "while", "a", "small", "engine", "counts", "stars", "and",
    "every", "token", "finds", "its", "place", "under", "quiet", "light", "of", "morning", "because", "seven",
    "people", "asked", "for", "something", "that", "no", "machine", "had", "written", "before", "today",
};

static Text make_chat(size_t wanted) {
    const char *front = "{\"id\":\"chatcmpl-%016llx\",\"object\":\"chat.completion\",\"created\":1700000000,"
                        "\"model\":\"mock\",\"choices\":[{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":\"";
    const char *back = "\"},\"logprobs\":null,\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":%d,"
                       "\"completion_tokens\":%d,\"total_tokens\":%d}}";
    char *body = must(malloc(wanted + 1024));
    int size = snprintf(body, 512, front, (unsigned long long)draw());
    int tokens = 0;
    while ((size_t)size + 160 < wanted) {
        const char *word = WORDS[draw() % (sizeof WORDS / sizeof *WORDS)];
        size += sprintf(body + size, "%s ", word);
        tokens++;
    }
    size += sprintf(body + size, back, 200, tokens, 200 + tokens);
    Text t = http_text("200 OK", body, (size_t)size);
    free(body);
    return t;
}

static Text make_embedding(void) {
    char *body = must(malloc(16384));
    int size = sprintf(body, "{\"object\":\"list\",\"data\":[{\"object\":\"embedding\",\"index\":0,\"embedding\":[");
    for (int i = 0; i < 384; i++)
        size += sprintf(body + size, "%s%.6f", i ? "," : "", (double)(draw() % 2000000) / 1e6 - 1.0);
    size += sprintf(body + size, "]}],\"model\":\"mock\",\"usage\":{\"prompt_tokens\":12,\"total_tokens\":12}}");
    Text t = http_text("200 OK", body, (size_t)size);
    free(body);
    return t;
}

static void make_replies(size_t wanted) {
    for (int i = 0; i < VARIANTS; i++) chat[i] = make_chat(wanted);
    completion = json_text("200 OK",
        "{\"id\":\"cmpl-1\",\"object\":\"text_completion\",\"created\":1700000000,\"model\":\"mock\",\"choices\":[{\"index\":0,"
        "\"text\":\" and so the night went on\",\"logprobs\":null,\"finish_reason\":\"stop\"}],"
        "\"usage\":{\"prompt_tokens\":12,\"completion_tokens\":6,\"total_tokens\":18}}");
    embedding = make_embedding();
    failure = json_text("500 Internal Server Error",
        "{\"error\":{\"message\":\"The mock was told to fail.\",\"type\":\"server_error\",\"param\":null,\"code\":null}}");
    models = json_text("200 OK", "{\"object\":\"list\",\"data\":[{\"id\":\"mock\",\"object\":\"model\",\"created\":1700000000,"
                                 "\"owned_by\":\"mock\"}]}");
    healthy = json_text("200 OK", "{\"status\":\"ok\"}");
    unknown = json_text("404 Not Found",
        "{\"error\":{\"message\":\"No such route.\",\"type\":\"not_found_error\",\"param\":null,\"code\":404}}");
    malformed = json_text("400 Bad Request",
        "{\"error\":{\"message\":\"The mock cannot read this request.\",\"type\":\"invalid_request_error\",\"code\":400}}");
}

static Text make_stats(void) {
    struct rusage use;
    char body[768];
    count_in_flight(0);
    getrusage(RUSAGE_SELF, &use);
    double cpu = (double)use.ru_utime.tv_sec + (double)use.ru_stime.tv_sec
               + ((double)use.ru_utime.tv_usec + (double)use.ru_stime.tv_usec) * 1e-6;
    snprintf(body, sizeof body,
             "{\"requests\":%llu,\"failures\":%llu,\"in_flight\":%llu,\"max_in_flight\":%llu,\"connections\":%llu,"
             "\"max_connections\":%llu,\"cpu_seconds\":%.6f,\"in_flight_seconds\":%.6f,\"uptime_seconds\":%.6f}",
             (unsigned long long)requests, (unsigned long long)failures, (unsigned long long)in_flight,
             (unsigned long long)most_in_flight, (unsigned long long)connections,
             (unsigned long long)most_connections, cpu, in_flight_seconds, counted_until - started);
    return json_text("200 OK", body);
}

/* ---- connections ------------------------------------------------------------------------------------------ */

static void leave_wheel(Connection *c) {
    if (!c->link) return;
    *c->link = c->next;
    if (c->next) c->next->link = c->link;
    c->link = NULL;
    c->next = NULL;
    waiting--;
}

static void drop(Connection *c) {
    leave_wheel(c);
    if (c->pending) count_in_flight(-1);
    close(c->fd);
    free(c->input);
    free(c->own.bytes);
    free(c);
    connections--;
}

static void watch(Connection *c, uint32_t events) {
    if (c->watched == events) return;
    struct epoll_event e = {.events = events, .data.ptr = c};
    if (epoll_ctl(epoll_fd, EPOLL_CTL_MOD, c->fd, &e) == 0) c->watched = events;
}

static void delay(Connection *c, int ms) {
    uint64_t at = now_ms() + (uint64_t)ms;
    if (at < wheel_ms) at = wheel_ms;
    unsigned slot = at % SLOTS;
    c->next = wheel[slot];
    if (c->next) c->next->link = &c->next;
    c->link = &wheel[slot];
    wheel[slot] = c;
    occupied[slot / 64] |= 1ULL << (slot % 64);
    waiting++;
}

/* 0 when the connection is gone. */
static int write_reply(Connection *c) {
    while (c->sent < c->due.size) {
        ssize_t n = send(c->fd, c->due.bytes + c->sent, c->due.size - c->sent, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
            c->writing = 1;
            watch(c, EPOLLOUT | EPOLLRDHUP);
            return 1;
        }
        if (n < 0) { drop(c); return 0; }
        c->sent += (size_t)n;
    }
    c->writing = 0;
    c->sent = 0;
    free(c->own.bytes);
    c->own.bytes = NULL;
    if (!c->keeps) { drop(c); return 0; }
    watch(c, EPOLLIN | EPOLLRDHUP);
    return 1;
}

static int answer(Connection *c, Text text) {
    c->due = text;
    return write_reply(c);
}

static int answer_late(Connection *c, Text text) {
    int ms = delay_min + (delay_max > delay_min ? (int)(draw() % (uint64_t)(delay_max - delay_min + 1)) : 0);
    count_in_flight(1);
    if (ms == 0) {
        requests++;
        count_in_flight(-1);
        return answer(c, text);
    }
    c->due = text;
    c->pending = 1;
    delay(c, ms);
    return 1;
}

static int route(Connection *c, const char *head) {
    if (!strncmp(head, "GET /stats ", 11)) {
        c->own = make_stats();
        return answer(c, c->own);
    }
    if (!strncmp(head, "GET /v1/models ", 15)) return answer(c, models);
    if (!strncmp(head, "GET /health ", 12)) return answer(c, healthy);
    if (strncmp(head, "POST /v1/", 9)) return answer(c, unknown);
    if (error_rate > 0 && (double)(draw() >> 11) / 9007199254740992.0 < error_rate) {
        failures++;
        return answer_late(c, failure);
    }
    if (!strncmp(head, "POST /v1/embeddings ", 20)) return answer_late(c, embedding);
    if (!strncmp(head, "POST /v1/completions ", 21)) return answer_late(c, completion);
    return answer_late(c, chat[draw() % VARIANTS]);
}

static void hold(Connection *c, const char *bytes, size_t size) {
    if (!size) {
        free(c->input);
        c->input = NULL;
        c->held = 0;
        return;
    }
    if (!c->input) c->input = must(malloc(HEAD_BYTES));
    memmove(c->input, bytes, size);
    c->held = size;
}

/* Reads the head in bytes[0..size): its length, or 0 while it is incomplete, or -1 when it makes no sense. */
static ssize_t read_head(Connection *c, char *bytes, size_t size) {
    char *end = memmem(bytes, size, "\r\n\r\n", 4);
    if (!end) return size >= HEAD_BYTES ? -1 : 0;
    c->body_left = 0;
    c->keeps = 1;
    for (char *line = memmem(bytes, (size_t)(end - bytes) + 2, "\r\n", 2); line < end;
         line = memmem(line, (size_t)(end - line) + 2, "\r\n", 2)) {
        line += 2;
        if (!strncasecmp(line, "content-length:", 15)) c->body_left = strtoull(line + 15, NULL, 10);
        if (!strncasecmp(line, "connection: close", 17)) c->keeps = 0;
        if (!strncasecmp(line, "transfer-encoding:", 18)) return -1;
    }
    return end + 4 - bytes;
}

/* Takes up to one request out of the bytes; what follows it is held until its reply is out. 0: connection gone. */
static int understand(Connection *c, char *bytes, size_t size) {
    static char head[HEAD_BYTES + 1];
    size_t line;
    if (!c->in_body) {
        ssize_t length = read_head(c, bytes, size);
        if (length == 0) { hold(c, bytes, size); return 1; }
        if (length < 0) { c->keeps = 0; return answer(c, malformed); }
        line = (size_t)((char *)memchr(bytes, '\r', size) - bytes);
        if (line > 255) line = 255;
        memcpy(head, bytes, line);
        head[line] = 0;
        bytes += length;
        size -= (size_t)length;
        if (c->body_left > size) {      /* the request line is kept in front of the body that is skipped */
            c->body_left -= size;
            c->in_body = 1;
            hold(c, head, line + 1);
            return 1;
        }
    } else {
        if (c->body_left > size) { c->body_left -= size; return 1; }
        memcpy(head, c->input, c->held);
    }
    bytes += c->body_left;
    size -= c->body_left;
    c->body_left = 0;
    c->in_body = 0;
    hold(c, bytes, size);
    return route(c, head);
}

/* Reads what is there, one request at a time. 0: connection gone. */
static int read_on(Connection *c) {
    static char bytes[262144];
    while (!c->pending && !c->writing) {
        size_t front = 0, room = sizeof bytes;
        if (!c->in_body && c->held) {
            memcpy(bytes, c->input, c->held);
            front = c->held;
            if (memmem(bytes, front, "\r\n\r\n", 4)) {  /* a pipelined request is there already */
                if (!understand(c, bytes, front)) return 0;
                continue;
            }
            if (front >= HEAD_BYTES) { c->keeps = 0; return answer(c, malformed); }
        }
        /* No more is taken than the body needs, or than can be held while a head is read. */
        room = c->in_body ? (c->body_left < room ? c->body_left : room) : HEAD_BYTES - front;
        ssize_t n = recv(c->fd, bytes + front, room, 0);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return 1;
        if (n <= 0) { drop(c); return 0; }
        if (!understand(c, bytes, front + (size_t)n)) return 0;
        if ((size_t)n < room) break;
    }
    return 1;
}

static void serve_event(Connection *c, uint32_t events) {
    if (events & (EPOLLERR | EPOLLHUP)) { drop(c); return; }
    if (c->writing) {
        if ((events & EPOLLOUT) && write_reply(c) && !c->writing) read_on(c);
        else if (events & EPOLLRDHUP && !(events & EPOLLOUT)) drop(c);
        return;
    }
    if (c->pending) {
        if (events & EPOLLRDHUP) drop(c);
        else watch(c, EPOLLRDHUP);      /* bytes sent ahead must wait, and would wake us for ever */
        return;
    }
    read_on(c);
}

static void serve_wheel(void) {
    uint64_t now = now_ms();
    if (!waiting) { wheel_ms = now; return; }
    for (; wheel_ms <= now; wheel_ms++) {
        unsigned slot = wheel_ms % SLOTS;
        if (!occupied[slot / 64]) {     /* skip what is left of an empty word */
            uint64_t rest = 63 - slot % 64;
            wheel_ms += rest < now - wheel_ms ? rest : now - wheel_ms;
            continue;
        }
        occupied[slot / 64] &= ~(1ULL << (slot % 64));
        while (wheel[slot]) {
            Connection *c = wheel[slot];
            leave_wheel(c);
            c->pending = 0;
            requests++;
            count_in_flight(-1);
            if (write_reply(c) && !c->writing && c->held) read_on(c);
        }
    }
}

/* Milliseconds until the next slot that holds something, -1 without one. */
static int until_next(void) {
    if (!waiting) return -1;
    uint64_t now = now_ms();
    for (uint64_t at = wheel_ms; at < wheel_ms + SLOTS; at++) {
        unsigned slot = at % SLOTS;
        if (!occupied[slot / 64]) { at += 63 - slot % 64; continue; }
        if (occupied[slot / 64] & (1ULL << (slot % 64))) return at > now ? (int)(at - now) : 0;
    }
    return 1000;
}

static void accept_all(int listener) {
    for (;;) {
        int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC), one = 1;
        if (fd < 0) return;
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        Connection *c = must(calloc(1, sizeof *c));
        c->fd = fd;
        c->watched = EPOLLIN | EPOLLRDHUP;
        struct epoll_event e = {.events = c->watched, .data.ptr = c};
        connections++;
        if (connections > most_connections) most_connections = connections;
        if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &e) < 0) drop(c);
    }
}

static int listen_on(int port) {
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), one = 1;
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    socklen_t size = sizeof at;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(listener, (struct sockaddr *)&at, size) < 0 || listen(listener, 16384) < 0) {
        perror("listen");
        exit(1);
    }
    getsockname(listener, (struct sockaddr *)&at, &size);
    printf("PORT %d\n", ntohs(at.sin_port));
    fflush(stdout);
    return listener;
}

static void watch_stdin(void *mark) {
    struct stat what;
    if (fstat(0, &what) < 0 || !(S_ISFIFO(what.st_mode) || S_ISSOCK(what.st_mode))) return;
    struct epoll_event e = {.events = EPOLLIN | EPOLLRDHUP, .data.ptr = mark};
    epoll_ctl(epoll_fd, EPOLL_CTL_ADD, 0, &e);
}

int main(int argc, char **argv) {
    if (argc < 5) {
        fprintf(stderr, "usage: %s PORT MIN_MS MAX_MS REPLY_BYTES [ERROR_RATE] [SEED]\n", argv[0]);
        return 2;
    }
    delay_min = atoi(argv[2]);
    delay_max = atoi(argv[3]);
    if (delay_min < 0 || delay_max < delay_min || delay_max > LONGEST_DELAY_MS) {
        fprintf(stderr, "delays must be 0 <= MIN_MS <= MAX_MS <= %d\n", LONGEST_DELAY_MS);
        return 2;
    }
    error_rate = argc > 5 ? atof(argv[5]) : 0;
    random_state = (argc > 6 ? strtoull(argv[6], NULL, 10) : 1) * 0x9E3779B97F4A7C15ULL | 1;
    struct rlimit files;
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    signal(SIGPIPE, SIG_IGN);
    make_replies((size_t)atoll(argv[4]));
    epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    int listener = listen_on(atoi(argv[1]));
    char input_mark;
    struct epoll_event e = {.events = EPOLLIN, .data.ptr = &listener}, events[EVENTS];
    epoll_ctl(epoll_fd, EPOLL_CTL_ADD, listener, &e);
    watch_stdin(&input_mark);
    started = counted_until = now_s();
    wheel_ms = now_ms();
    for (;;) {
        int n = epoll_wait(epoll_fd, events, EVENTS, until_next());
        if (n < 0 && errno != EINTR) { perror("epoll_wait"); return 1; }
        for (int i = 0; i < n; i++) {
            if (events[i].data.ptr == &listener) accept_all(listener);
            else if (events[i].data.ptr == &input_mark) return 0;
            else serve_event(events[i].data.ptr, events[i].events);
        }
        serve_wheel();
    }
}
