/* A clock that jumps and names that take long to look up, for one process: LD_PRELOAD.
 *
 *   ENVIRONMENT_CLOCK   a file with a number: seconds by which the time of day is off. The monotonic clock is left alone
 *   ENVIRONMENT_NAMES   a directory: a name that ends in ".slow" is looked up only when there is a file of that name in it;
 *                       it is then 127.0.0.1. The file NAME.asked appears with the question
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t clock, struct timespec *time) {
    int result = (int)syscall(SYS_clock_gettime, clock, time);
    const char *path = getenv("ENVIRONMENT_CLOCK");
    if (result != 0 || clock != CLOCK_REALTIME || !path) return result;
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return result;
    char text[32] = {0};
    if (read(file, text, sizeof text - 1) > 0) time->tv_sec += atol(text);
    close(file);
    return result;
}

int getaddrinfo(const char *node, const char *service, const struct addrinfo *hints, struct addrinfo **found) {
    static int (*next)(const char *, const char *, const struct addrinfo *, struct addrinfo **);
    if (!next) next = (int (*)(const char *, const char *, const struct addrinfo *, struct addrinfo **))dlsym(RTLD_NEXT, "getaddrinfo");
    const char *directory = getenv("ENVIRONMENT_NAMES");
    size_t length = node ? strlen(node) : 0;
    if (!directory || length < 5 || strcmp(node + length - 5, ".slow") != 0) return next(node, service, hints, found);
    char path[4096];
    snprintf(path, sizeof path, "%s/%s.asked", directory, node);
    close(open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0644));
    snprintf(path, sizeof path, "%s/%s", directory, node);
    while (access(path, F_OK) != 0) usleep(10000);
    return next("127.0.0.1", service, hints, found);
}
