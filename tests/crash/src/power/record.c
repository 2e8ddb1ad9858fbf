/* Tells what a process has the disk do, in order: LD_PRELOAD. Syncs take a while and do nothing: which of what was done would
 * be there after a power cut is worked out from the record (disk.rs).
 *
 *   RECORD_DIRECTORY   what is done to files and names in it is recorded; links of it are resolved
 *   RECORD_FILE        the record: for each call a `struct call` and so many bytes
 *   RECORD_STOP        once a file of that name is there, the next call kills the process instead: no call is left that
 *                      was done and not recorded
 *
 * A call and its record are one step, as others see it, but for syncs, which are recorded as they begin and as they end.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

/* How long a sync takes at most, in microseconds. */
#define SYNC_US_MAX 2000

/* The numbers are those of recording.rs. */
enum { CREATE = 1, WRITE, CUT, BEGIN_SYNC, END_SYNC, RENAME, REMOVE, MAKE_DIRECTORY };

struct call {
    /* When it had been done, by CLOCK_MONOTONIC. */
    uint64_t at_ns;
    uint64_t inode;
    /* Of a write; the new length of a cut; the number of a sync. */
    uint64_t offset;
    uint32_t kind, length;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int record = -1;
static unsigned syncs;

static int concerns(const char *path) {
    static const char *directory;
    if (!directory) directory = getenv("RECORD_DIRECTORY");
    return directory && strncmp(path, directory, strlen(directory)) == 0;
}

static int is_recorded(int fd) {
    char link[64], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = syscall(SYS_readlink, link, path, PATH_MAX - 1);
    if (length <= 0) return 0;
    path[length] = 0;
    return concerns(path);
}

static uint64_t inode_of(int fd) {
    struct stat data;
    return fstat(fd, &data) == 0 ? data.st_ino : 0;
}

static void begin(void) {
    pthread_mutex_lock(&lock);
    if (syscall(SYS_faccessat, AT_FDCWD, getenv("RECORD_STOP"), F_OK) == 0) {
        kill(getpid(), SIGKILL);
        pause();
    }
}

/* Ends what was begun: errno is that of the call. */
static void end(int error) {
    pthread_mutex_unlock(&lock);
    errno = error;
}

/* Between the two. */
static void note(uint32_t kind, uint64_t inode, uint64_t offset, const void *bytes, size_t length) {
    if (record < 0) record = (int)syscall(SYS_openat, AT_FDCWD, getenv("RECORD_FILE"), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    struct call call = {now.tv_sec * 1000000000ull + now.tv_nsec, inode, offset, kind, (uint32_t)length};
    struct iovec parts[2] = {{&call, sizeof call}, {(void *)bytes, length}};
    if (syscall(SYS_writev, record, parts, 2) != (ssize_t)(sizeof call + length)) abort();
}

static ssize_t put(int fd, const void *bytes, size_t length, off_t at, int moves) {
    begin();
    if (moves) at = syscall(SYS_lseek, fd, 0, SEEK_CUR);
    ssize_t count = moves ? syscall(SYS_write, fd, bytes, length) : syscall(SYS_pwrite64, fd, bytes, length, at);
    int error = errno;
    if (count > 0) note(WRITE, inode_of(fd), at, bytes, count);
    end(error);
    return count;
}

ssize_t write(int fd, const void *bytes, size_t length) {
    return is_recorded(fd) ? put(fd, bytes, length, 0, 1) : syscall(SYS_write, fd, bytes, length);
}

ssize_t writev(int fd, const struct iovec *pieces, int count) {
    if (!is_recorded(fd)) return syscall(SYS_writev, fd, pieces, count);
    for (int at = 0; at < count; at++)
        if (pieces[at].iov_len > 0) return put(fd, pieces[at].iov_base, pieces[at].iov_len, 0, 1);
    return 0;
}

ssize_t pwrite64(int fd, const void *bytes, size_t length, off64_t at) {
    return is_recorded(fd) ? put(fd, bytes, length, at, 0) : syscall(SYS_pwrite64, fd, bytes, length, at);
}

int ftruncate64(int fd, off64_t length) {
    if (!is_recorded(fd)) return (int)syscall(SYS_ftruncate, fd, length);
    begin();
    int result = (int)syscall(SYS_ftruncate, fd, length), error = errno;
    if (result == 0) note(CUT, inode_of(fd), length, NULL, 0);
    end(error);
    return result;
}

static int sync_file(int fd, long number) {
    if (!is_recorded(fd)) return (int)syscall(number, fd);
    begin();
    unsigned sync = ++syncs;
    note(BEGIN_SYNC, inode_of(fd), sync, NULL, 0);
    end(errno);
    usleep(sync * 2654435761u % SYNC_US_MAX);
    begin();
    note(END_SYNC, inode_of(fd), sync, NULL, 0);
    end(errno);
    return 0;
}

int fsync(int fd) { return sync_file(fd, SYS_fsync); }
int fdatasync(int fd) { return sync_file(fd, SYS_fdatasync); }

int rename(const char *from, const char *to) {
    if (!concerns(from) && !concerns(to)) return (int)syscall(SYS_rename, from, to);
    char names[2 * PATH_MAX];
    int length = snprintf(names, sizeof names, "%s%c%s", from, 0, to);
    begin();
    int result = (int)syscall(SYS_rename, from, to), error = errno;
    if (result == 0) note(RENAME, 0, 0, names, length);
    end(error);
    return result;
}

int unlink(const char *path) {
    if (!concerns(path)) return (int)syscall(SYS_unlink, path);
    begin();
    int result = (int)syscall(SYS_unlink, path), error = errno;
    if (result == 0) note(REMOVE, 0, 0, path, strlen(path));
    end(error);
    return result;
}

int mkdir(const char *path, mode_t mode) {
    if (!concerns(path)) return (int)syscall(SYS_mkdir, path, mode);
    begin();
    int result = (int)syscall(SYS_mkdir, path, mode), error = errno;
    struct stat data;
    if (result == 0 && stat(path, &data) == 0) note(MAKE_DIRECTORY, data.st_ino, 0, path, strlen(path));
    end(error);
    return result;
}

int open64(const char *path, int flags, ...) {
    va_list rest;
    va_start(rest, flags);
    mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0;
    va_end(rest);
    if (!(flags & (O_CREAT | O_TRUNC)) || !concerns(path)) return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
    begin();
    int is_new = syscall(SYS_faccessat, AT_FDCWD, path, F_OK) != 0;
    int fd = (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode), error = errno;
    if (fd >= 0 && is_new) note(CREATE, inode_of(fd), 0, path, strlen(path));
    if (fd >= 0 && !is_new && (flags & O_TRUNC)) note(CUT, inode_of(fd), 0, NULL, 0);
    end(error);
    return fd;
}
