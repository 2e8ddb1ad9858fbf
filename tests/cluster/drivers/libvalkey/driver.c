/* libvalkey, the successor of hiredis and hiredis-cluster, as a driver; test_cluster_clients.py has the protocol.
 * One worker, which looks for orders between two steps. */
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <valkey/cluster.h>

enum { KEYS = 32, PAUSE_MS = 4, CHECKS = 200 };

#define SCRIPT "return redis.call('incrby', KEYS[1], ARGV[1])"

typedef struct {
    char key[64];
    /* Of c and d: the last reply, and the attempts whose outcome is unknown. */
    long long last[2], unknown[2];
} counter;

static valkeyClusterContext *client;
static counter counters[KEYS];
static long steps;
static long long done, errors, doubled, lost, longest;
static char text[512];

static long long now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000LL + now.tv_nsec / 1000000;
}

/* The integer that a command answers, in `value`; 0 where it has failed, with the reason in `reason`. */
static int number(valkeyReply *reply, long long *value, char *reason, size_t size) {
    int good = 1;
    if (!reply) {
        snprintf(reason, size, "%s", client->errstr);
        good = 0;
    } else if (reply->type == VALKEY_REPLY_INTEGER) {
        *value = reply->integer;
    } else if (reply->type == VALKEY_REPLY_NIL) {
        *value = 0;
    } else if (reply->type == VALKEY_REPLY_STRING) {
        *value = atoll(reply->str);
    } else {
        snprintf(reason, size, "%s", reply->str ? reply->str : "another type");
        good = 0;
    }
    freeReplyObject(reply);
    return good;
}

/* The node that a MOVED names, or NULL if the library does not know it. */
static valkeyClusterNode *node_of(const char *moved) {
    const char *address = strrchr(moved, ' ');
    valkeyClusterNodeIterator nodes;
    valkeyClusterInitNodeIterator(&nodes, client);
    for (valkeyClusterNode *node; address && (node = valkeyClusterNodeNext(&nodes));) {
        if (!strcmp(node->addr, address + 1)) return node;
    }
    return NULL;
}

/* MULTI, INCR, INCR and EXEC at the node that has the slot, as the library has it: without redirections. A refused transaction
 * has changed nothing. So it is sent to the node that a MOVED names, as often as the library follows one for single commands. */
static int transaction(const char *c, const char *d, long long got[2], char *reason, size_t size) {
    char moved[256] = "";
    for (int attempt = 0; attempt < 5; attempt++) {
        char key[80];
        snprintf(key, sizeof key, "%s", c);
        valkeyClusterNode *node = *moved ? node_of(moved) : NULL;
        if (!node) node = valkeyClusterGetNodeByKey(client, key);
        if (!node) {
            snprintf(reason, size, "no node: %s", client->errstr);
            return 0;
        }
        valkeyReply *replies[4] = {0};
        int came = 0;
        valkeyClusterAppendCommandToNode(client, node, "MULTI");
        valkeyClusterAppendCommandToNode(client, node, "INCR %s", c);
        valkeyClusterAppendCommandToNode(client, node, "INCR %s", d);
        valkeyClusterAppendCommandToNode(client, node, "EXEC");
        while (came < 4 && valkeyClusterGetReply(client, (void **)&replies[came]) == VALKEY_OK && replies[came]) came++;
        snprintf(reason, size, "%s", client->errstr);
        valkeyClusterReset(client);
        int good = came == 4 && replies[3]->type == VALKEY_REPLY_ARRAY && replies[3]->elements == 2;
        *moved = 0;
        /* The first refusal is the cause of those behind it. */
        for (int at = came - 1; at >= 0; at--) {
            if (replies[at]->type != VALKEY_REPLY_ERROR) continue;
            snprintf(reason, size, "%s", replies[at]->str);
            if (!strncmp(replies[at]->str, "MOVED", 5)) snprintf(moved, sizeof moved, "%s", replies[at]->str);
        }
        for (int at = 0; good && at < 2; at++) got[at] = replies[3]->element[at]->integer;
        for (int at = 0; at < came; at++) freeReplyObject(replies[at]);
        if (good) return 1;
        if (!*moved) return 0;
        valkeyClusterUpdateSlotmap(client);
    }
    return 0;
}

static void step(void) {
    counter *one = &counters[steps % KEYS];
    int kind = steps++ / KEYS % 4, good;
    char c[80], d[80], reason[256] = "";
    long long got[2] = {0, 0}, began = now_ms();
    snprintf(c, sizeof c, "%sc", one->key);
    snprintf(d, sizeof d, "%sd", one->key);
    if (kind == 2)
        good = transaction(c, d, got, reason, sizeof reason);
    else
        good = number(valkeyClusterCommand(client, kind == 3 ? "GET %s" : "INCR %s", c), &got[0], reason, sizeof reason);
    long long took = now_ms() - began;
    longest = took > longest ? took : longest;
    if (!good) {
        errors++;
        if (!*text) snprintf(text, sizeof text, "%s", reason);
        one->unknown[0] += kind != 3;
        one->unknown[1] += kind == 2;
        return;
    }
    done++;
    for (int at = 0; at < (kind == 2 ? 2 : 1); at++) {
        long long next = one->last[at] + (kind != 3);
        if (got[at] < next)
            lost++;
        else if (!one->unknown[at])
            doubled += got[at] - next;
        if (kind != 3) one->last[at] = got[at];
    }
}

static int expect(const char *what, int good, char *answer, size_t size) {
    if (!good && !*answer) snprintf(answer, size, "failed %s %s", what, client->errstr);
    return good;
}

static int is(valkeyReply *reply, const char *wanted) {
    int same = reply && reply->str && !strcmp(reply->str, wanted);
    freeReplyObject(reply);
    return same;
}

static void check(const char *prefix, char *answer, size_t size) {
    char reason[256], a[80], b[80];
    long long value, got[2];
    snprintf(a, sizeof a, "{%s}a", prefix);
    snprintf(b, sizeof b, "{%s}b", prefix);
    for (int at = 0; at < CHECKS; at++)
        expect("SET", is(valkeyClusterCommand(client, "SET %s:%d %d", prefix, at, at), "OK"), answer, size);
    for (int at = 0; at < CHECKS; at++) valkeyClusterAppendCommand(client, "GET %s:%d", prefix, at);
    for (int at = 0; at < CHECKS; at++) {
        valkeyReply *reply = NULL;
        valkeyClusterGetReply(client, (void **)&reply);
        expect("GET", number(reply, &value, reason, sizeof reason) && value == at, answer, size);
    }
    valkeyClusterReset(client);
    expect("MSET", is(valkeyClusterCommand(client, "MSET %s 1 %s 2", a, b), "OK"), answer, size);
    expect("EXEC", transaction(a, b, got, reason, sizeof reason) && got[0] == 2 && got[1] == 3, answer, size);
    valkeyReply *reply = valkeyClusterCommand(client, "EVAL %s 1 %s 40", SCRIPT, a);
    expect("EVAL", number(reply, &value, reason, sizeof reason) && value == 42, answer, size);
    reply = valkeyClusterCommand(client, "MGET %s %s", a, b);
    expect("MGET", reply && reply->elements == 2 && !strcmp(reply->element[0]->str, "42"), answer, size);
    freeReplyObject(reply);
}

int main(int count, char **arguments) {
    char line[256], answer[64 * KEYS * 4];
    int runs = 0;
    /* Of the library's cluster only: it has no class for Sentinel. */
    if (count < 3 || strcmp(arguments[1], "cluster")) return 2;
    client = valkeyClusterConnect(arguments[2]);
    if (!client || client->err) {
        fprintf(stderr, "%s\n", client ? client->errstr : "no memory");
        return 1;
    }
    setvbuf(stdin, NULL, _IONBF, 0);
    for (;;) {
        struct pollfd input = {.fd = 0, .events = POLLIN};
        if (runs && poll(&input, 1, PAUSE_MS) == 0) {
            step();
            continue;
        }
        if (!fgets(line, sizeof line, stdin)) return 0;
        char *word = strtok(line, " \n"), *prefix = strtok(NULL, " \n");
        *answer = 0;
        if (word && !strcmp(word, "check") && prefix) {
            check(prefix, answer, sizeof answer);
        } else if (word && !strcmp(word, "load") && prefix) {
            for (int at = 0; at < KEYS; at++) snprintf(counters[at].key, sizeof counters[at].key, "{%.32s-%d}", prefix, at);
            runs = 1;
        } else if (word && !strcmp(word, "report")) {
            snprintf(answer, sizeof answer, "ok %lld %lld %lld %lld %lld %s", done, errors, doubled, lost, longest, text);
            done = errors = doubled = lost = longest = 0;
            *text = 0;
        } else if (word && !strcmp(word, "stop")) {
            size_t at = snprintf(answer, sizeof answer, "ok");
            for (counter *one = counters; one < counters + KEYS && at < sizeof answer; one++)
                at += snprintf(answer + at, sizeof answer - at, " %sc=%lld:%lld %sd=%lld:%lld", one->key, one->last[0],
                               one->unknown[0], one->key, one->last[1], one->unknown[1]);
            runs = 0;
        }
        printf("%s\n", *answer ? answer : "ok");
        fflush(stdout);
    }
}
