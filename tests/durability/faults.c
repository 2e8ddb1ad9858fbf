/* A disk that fails on request, for one process: LD_PRELOAD.
 *
 *   FAULTS_DIRECTORY   only files in it are concerned; links of it are resolved
 *   FAULTS_CONTROL     a file that says what fails now, one line a fault: CALL ERRNO PART
 *                      CALL is write, fsync, open or rename; PART is a part of the path in the directory, or *.
 *                      CALL may also be hang: syncs wait for as long as the line is there, whatever its number
 *   FAULTS_MARKER      a file that appears with the first failure
 *   FAULTS_KILL_AT     the process is killed in the n-th call that changes a file; half of a write is done then
 *   FAULTS_POWER       with it, what was not synced is gone, too, as after a power cut
 *
 * A write that fails does so behind half of its bytes. A sync that fails forgets what was written since the last one that
 * did not, as Linux may: zeros are in its place, and the next sync succeeds. Of what was written over the room that a log
 * ends with, the room is left.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define FILES_MAX 512

/* A file that was written to, and the part of it on disk. */
static struct known {
    dev_t device;
    ino_t inode;
    int fd;
    /* Its length on disk, and up to where what was written is there. */
    off_t synced, durable;
} known[FILES_MAX];
static int known_count;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static long calls;

static const char *setting(const char *name) {
    const char *value = getenv(name);
    return value && *value ? value : NULL;
}

static int concerns(const char *path) {
    const char *directory = setting("FAULTS_DIRECTORY");
    return directory && strncmp(path, directory, strlen(directory)) == 0;
}

static int path_of(int fd, char *path) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = syscall(SYS_readlink, link, path, PATH_MAX - 1);
    if (length <= 0) return 0;
    path[length] = 0;
    return concerns(path);
}

static struct known *find(int fd) {
    struct stat data;
    if (fstat(fd, &data) != 0) return NULL;
    for (int at = 0; at < known_count; at++)
        if (known[at].device == data.st_dev && known[at].inode == data.st_ino) return &known[at];
    if (known_count == FILES_MAX) return NULL;
    /* What it had when it was met first is taken to be on disk. */
    off_t at = syscall(SYS_lseek, fd, 0, SEEK_CUR);
    known[known_count] = (struct known){data.st_dev, data.st_ino, (int)syscall(SYS_dup, fd), data.st_size, at};
    return &known[known_count++];
}

static int fault(const char *call, const char *path) {
    const char *control = setting("FAULTS_CONTROL");
    if (!control) return 0;
    int fd = (int)syscall(SYS_openat, AT_FDCWD, control, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return 0;
    char text[1024];
    ssize_t length = syscall(SYS_read, fd, text, sizeof text - 1);
    syscall(SYS_close, fd);
    if (length <= 0) return 0;
    text[length] = 0;
    char *rest = NULL;
    for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        char name[32], part[256];
        int number;
        if (sscanf(line, "%31s %d %255s", name, &number, part) != 3) continue;
        if (strcmp(name, call) != 0 || (part[0] != '*' && !strstr(path + strlen(setting("FAULTS_DIRECTORY")), part))) continue;
        const char *marker = setting("FAULTS_MARKER");
        if (marker) {
            int made = (int)syscall(SYS_openat, AT_FDCWD, marker, O_WRONLY | O_CREAT, 0644);
            if (made >= 0) syscall(SYS_close, made);
        }
        return number;
    }
    return 0;
}

/* Counts a call that changes a file; whether it is the last one. */
static int is_last(void) {
    const char *at = setting("FAULTS_KILL_AT");
    return at && __sync_add_and_fetch(&calls, 1) == atol(at);
}

/* Puts zeros or room over a part of a file, whatever it was opened for. */
static void cover(int fd, off_t from, off_t end, int with_room) {
    char piece[4096], link[64];
    for (size_t at = 0; at < sizeof piece; at++) piece[at] = !with_room ? 0 : (from + at) % 512 == 511 ? '\n' : '#';
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    int again = (int)syscall(SYS_openat, AT_FDCWD, link, O_WRONLY | O_CLOEXEC);
    for (off_t at = from; again >= 0 && at < end; at += sizeof piece) {
        size_t left = (size_t)(end - at);
        syscall(SYS_pwrite64, again, piece, left < sizeof piece ? left : sizeof piece, at);
    }
    if (again >= 0) syscall(SYS_close, again);
}

/* Takes back what was written over room and is not durable. */
static void restore_room(struct known *file) {
    char path[PATH_MAX];
    off_t at = syscall(SYS_lseek, file->fd, 0, SEEK_CUR);
    if (path_of(file->fd, path) && strstr(path, ".incr.")) cover(file->fd, file->durable, at < file->synced ? at : file->synced, 1);
}

static void die(void) {
    if (setting("FAULTS_POWER")) {
        pthread_mutex_lock(&lock);
        for (int at = 0; at < known_count; at++) {
            struct stat data;
            if (fstat(known[at].fd, &data) == 0 && data.st_size > known[at].synced)
                syscall(SYS_ftruncate, known[at].fd, known[at].synced);
            restore_room(&known[at]);
        }
    }
    kill(getpid(), SIGKILL);
    pause();
}

/* What a write of one piece comes to: -1 with errno, or how many bytes of it to write. */
static ssize_t admit_write(int fd, size_t bytes) {
    static __thread int halved;
    char path[PATH_MAX];
    if (!path_of(fd, path)) return (ssize_t)bytes;
    pthread_mutex_lock(&lock);
    find(fd);
    pthread_mutex_unlock(&lock);
    if (is_last()) {
        return -2;
    }
    int number = fault("write", path);
    if (!number) {
        halved = 0;
        return (ssize_t)bytes;
    }
    if (!halved && bytes > 1) {
        halved = 1;
        return (ssize_t)(bytes / 2);
    }
    errno = number;
    return -1;
}

ssize_t write(int fd, const void *bytes, size_t length) {
    ssize_t admitted = admit_write(fd, length);
    if (admitted == -2) {
        syscall(SYS_write, fd, bytes, length / 2);
        die();
    }
    return admitted < 0 ? -1 : syscall(SYS_write, fd, bytes, admitted);
}

ssize_t writev(int fd, const struct iovec *pieces, int count) {
    char path[PATH_MAX];
    if (!path_of(fd, path)) return syscall(SYS_writev, fd, pieces, count);
    for (int at = 0; at < count; at++)
        if (pieces[at].iov_len > 0) return write(fd, pieces[at].iov_base, pieces[at].iov_len);
    return 0;
}

ssize_t pwrite64(int fd, const void *bytes, size_t length, off64_t at) {
    ssize_t admitted = admit_write(fd, length);
    if (admitted == -2) {
        syscall(SYS_pwrite64, fd, bytes, length / 2, at);
        die();
    }
    return admitted < 0 ? -1 : syscall(SYS_pwrite64, fd, bytes, admitted, at);
}

static int sync_file(int fd, long number) {
    char path[PATH_MAX];
    if (!path_of(fd, path)) return (int)syscall(number, fd);
    if (is_last()) die();
    struct stat data, before;
    int is_known = fstat(fd, &before) == 0;
    off_t at = syscall(SYS_lseek, fd, 0, SEEK_CUR);
    while (fault("hang", path)) usleep(1000);
    pthread_mutex_lock(&lock);
    struct known *file = find(fd);
    int failure = fault("fsync", path), result = -1;
    if (failure) {
        if (file && fstat(fd, &data) == 0 && S_ISREG(data.st_mode)) {
            cover(fd, file->synced, data.st_size, 0);
            restore_room(file);
        }
        errno = failure;
    } else {
        result = (int)syscall(number, fd);
        /* What was written meanwhile may have missed it. */
        if (result == 0 && file && is_known) {
            file->synced = before.st_size;
            file->durable = at;
        }
    }
    pthread_mutex_unlock(&lock);
    return result;
}

int fsync(int fd) { return sync_file(fd, SYS_fsync); }
int fdatasync(int fd) { return sync_file(fd, SYS_fdatasync); }

int ftruncate64(int fd, off64_t length) {
    char path[PATH_MAX];
    if (path_of(fd, path)) {
        if (is_last()) die();
        pthread_mutex_lock(&lock);
        struct known *file = find(fd);
        if (file && file->synced > length) file->synced = length;
        if (file && file->durable > length) file->durable = length;
        pthread_mutex_unlock(&lock);
    }
    return (int)syscall(SYS_ftruncate, fd, length);
}

int rename(const char *from, const char *to) {
    if (concerns(to)) {
        if (is_last()) die();
        int number = fault("rename", to);
        if (number) {
            errno = number;
            return -1;
        }
    }
    return (int)syscall(SYS_rename, from, to);
}

int unlink(const char *path) {
    if (concerns(path) && is_last()) die();
    return (int)syscall(SYS_unlink, path);
}

int mkdir(const char *path, mode_t mode) {
    if (concerns(path) && is_last()) die();
    return (int)syscall(SYS_mkdir, path, mode);
}

int open64(const char *path, int flags, ...) {
    va_list rest;
    va_start(rest, flags);
    mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0;
    va_end(rest);
    if ((flags & O_CREAT) && concerns(path)) {
        if (is_last()) die();
        int number = fault("open", path);
        if (number) {
            errno = number;
            return -1;
        }
    }
    return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}
