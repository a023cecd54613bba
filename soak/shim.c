/* Loaded before all other libraries: system calls that change files below a folder, or those that read them, fail at a
 * chosen moment, or are recorded; and the clock may be wrong. It is told what to do through a file that both sides have
 * mapped into memory. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

struct control { int32_t armed, calls, fatal, error, lasting, recording, shorten, hits, reading, ahead; char root[PATH_MAX], log[PATH_MAX]; };
static struct control *control;
static int log_fd = -1;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

__attribute__((constructor)) static void begin(void) {
    const char *place = getenv("SOAK_SHIM");
    int fd = place ? (int)syscall(SYS_openat, AT_FDCWD, place, O_RDWR) : -1;
    if (fd < 0) return;
    void *mapped = mmap(0, sizeof(struct control), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (mapped != MAP_FAILED) control = mapped;
    syscall(SYS_close, fd);
}

#define PLAIN(name) static __typeof__(name) *plain; if (!plain) plain = dlsym(RTLD_NEXT, #name)

static int ours(const char *path) {
    return path && !strncmp(path, control->root, strlen(control->root));
}
static int ours_fd(int fd, char *path) {
    char link[64], *digit = link + sizeof link;
    *--digit = 0;
    int n = fd;
    do { *--digit = '0' + n % 10; n /= 10; } while (n);
    digit -= 14;
    memcpy(digit, "/proc/self/fd/", 14);
    ssize_t length = readlink(digit, path, PATH_MAX - 1);
    if (length < 0) return 0;
    path[length] = 0;
    return ours(path);
}
/* Whether the call fails; `errno` says why. -2: it writes or reads half of what it should. */
static int fate_of(int reads) {
    if (reads != control->reading) return 0;
    int32_t call = __sync_add_and_fetch(&control->calls, 1);
    if (!control->fatal || call < control->fatal || (call > control->fatal && !control->lasting)) return 0;
    __sync_add_and_fetch(&control->hits, 1);
    if (control->shorten && call == control->fatal) return -2;
    errno = control->error;
    return -1;
}
static int fate(void) { return fate_of(0); }
static void put(const void *data, size_t length) {
    const char *from = data;
    while (length) {
        ssize_t done = syscall(SYS_write, log_fd, from, length);
        if (done <= 0) return;
        from += done; length -= done;
    }
}
static void record(int32_t kind, const char *path, const char *other, int64_t offset, const struct iovec *parts, int count, int64_t limit) {
    if (!control->recording) return;
    pthread_mutex_lock(&lock);
    if (log_fd < 0) log_fd = (int)syscall(SYS_openat, AT_FDCWD, control->log, O_WRONLY | O_CREAT | O_APPEND, 0644);
    int64_t total = 0;
    for (int i = 0; i < count; i++) total += parts[i].iov_len;
    if (limit >= 0 && limit < total) total = limit;
    int32_t head[3] = {kind, (int32_t)strlen(path), other ? (int32_t)strlen(other) : 0};
    int64_t numbers[2] = {offset, total};
    put(head, sizeof head); put(numbers, sizeof numbers);
    put(path, head[1]); if (other) put(other, head[2]);
    for (int i = 0; i < count && total > 0; i++) {
        size_t some = parts[i].iov_len < (size_t)total ? parts[i].iov_len : (size_t)total;
        put(parts[i].iov_base, some); total -= some;
    }
    pthread_mutex_unlock(&lock);
}
enum { CREATE = 1, WRITE, RENAME, LINK, UNLINK, SYNC, TRUNCATE, MKDIR };
#define ARMED (control && control->armed)

static ssize_t wrote(int fd, const struct iovec *parts, int count, off_t offset, int positioned) {
    static ssize_t (*plain)(int, const struct iovec *, int);
    static ssize_t (*plain_at)(int, const struct iovec *, int, off_t);
    if (!plain) { plain = dlsym(RTLD_NEXT, "writev"); plain_at = dlsym(RTLD_NEXT, "pwritev"); }
    char path[PATH_MAX];
    struct iovec half;
    int matters = ARMED && ours_fd(fd, path);
    if (matters) {
        int end = fate();
        if (end == -1) return -1;
        if (end == -2 && count) {
            half.iov_base = parts[0].iov_base; half.iov_len = parts[0].iov_len / 2;
            if (half.iov_len) { parts = &half; count = 1; }
        }
        if (!positioned) {
            int flags = fcntl(fd, F_GETFL);
            offset = lseek(fd, 0, flags & O_APPEND ? SEEK_END : SEEK_CUR);
            if (flags & O_APPEND) lseek(fd, 0, SEEK_END);
        }
    }
    ssize_t done = positioned ? plain_at(fd, parts, count, offset) : plain(fd, parts, count);
    if (matters && done > 0) record(WRITE, path, 0, offset, parts, count, done);
    return done;
}
ssize_t write(int fd, const void *data, size_t length) {
    PLAIN(write);
    if (!ARMED) return plain(fd, data, length);
    struct iovec part = {(void *)data, length};
    return wrote(fd, &part, 1, 0, 0);
}
ssize_t pwrite(int fd, const void *data, size_t length, off_t offset) {
    PLAIN(pwrite);
    if (!ARMED) return plain(fd, data, length, offset);
    struct iovec part = {(void *)data, length};
    return wrote(fd, &part, 1, offset, 1);
}
ssize_t pwrite64(int fd, const void *data, size_t length, off64_t offset) { return pwrite(fd, data, length, offset); }
ssize_t writev(int fd, const struct iovec *parts, int count) { return wrote(fd, parts, count, 0, 0); }
ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t offset) { return wrote(fd, parts, count, offset, 1); }
ssize_t pwritev64(int fd, const struct iovec *parts, int count, off64_t offset) { return wrote(fd, parts, count, offset, 1); }
ssize_t pwritev2(int fd, const struct iovec *parts, int count, off_t offset, int flags) { (void)flags; return wrote(fd, parts, count, offset, 1); }
ssize_t pwritev64v2(int fd, const struct iovec *parts, int count, off64_t offset, int flags) { (void)flags; return wrote(fd, parts, count, offset, 1); }

static int opened(int folder, const char *path, int flags, mode_t mode) {
    static int (*plain)(int, const char *, int, ...);
    if (!plain) plain = dlsym(RTLD_NEXT, "openat");
    int matters = ARMED && (flags & (O_CREAT | O_TRUNC)) && ours(path);
    if (matters && fate()) { if (!errno) errno = EIO; return -1; }
    if (ARMED && control->reading && !matters && ours(path) && fate_of(1)) return errno = control->error, -1;
    int fd = plain(folder, path, flags, mode);
    if (matters && fd >= 0) record(CREATE, path, 0, (flags & O_TRUNC) != 0, 0, 0, 0);
    return fd;
}
#define MODE mode_t mode = 0; if (flags & O_CREAT) { va_list more; va_start(more, flags); mode = va_arg(more, int); va_end(more); }
int open(const char *path, int flags, ...) { MODE return opened(AT_FDCWD, path, flags, mode); }
int open64(const char *path, int flags, ...) { MODE return opened(AT_FDCWD, path, flags | O_LARGEFILE, mode); }
int openat(int folder, const char *path, int flags, ...) { MODE return opened(folder, path, flags, mode); }
int openat64(int folder, const char *path, int flags, ...) { MODE return opened(folder, path, flags | O_LARGEFILE, mode); }

#define TWO(name, kind) int name(const char *one, const char *other) { PLAIN(name); \
    int matters = ARMED && ours(other); if (matters && fate()) return errno = control->error, -1; \
    int done = plain(one, other); if (matters && !done) record(kind, one, other, 0, 0, 0, 0); return done; }
TWO(rename, RENAME)
TWO(link, LINK)
int linkat(int a, const char *one, int b, const char *other, int flags) { PLAIN(linkat);
    int matters = ARMED && ours(other); if (matters && fate()) return errno = control->error, -1;
    int done = plain(a, one, b, other, flags); if (matters && !done) record(LINK, one, other, 0, 0, 0, 0); return done; }
int renameat(int a, const char *one, int b, const char *other) { PLAIN(renameat);
    int matters = ARMED && ours(other); if (matters && fate()) return errno = control->error, -1;
    int done = plain(a, one, b, other); if (matters && !done) record(RENAME, one, other, 0, 0, 0, 0); return done; }
int renameat2(int a, const char *one, int b, const char *other, unsigned flags) { PLAIN(renameat2);
    int matters = ARMED && ours(other); if (matters && fate()) return errno = control->error, -1;
    int done = plain(a, one, b, other, flags); if (matters && !done) record(RENAME, one, other, 0, 0, 0, 0); return done; }
int unlink(const char *path) { PLAIN(unlink);
    int matters = ARMED && ours(path); if (matters && fate()) return errno = control->error, -1;
    int done = plain(path); if (matters && !done) record(UNLINK, path, 0, 0, 0, 0, 0); return done; }
int mkdir(const char *path, mode_t mode) { PLAIN(mkdir);
    int matters = ARMED && ours(path); if (matters && fate()) return errno = control->error, -1;
    int done = plain(path, mode); if (matters && !done) record(MKDIR, path, 0, 0, 0, 0, 0); return done; }
#define ONE_FD(name) int name(int fd) { PLAIN(name); char path[PATH_MAX]; \
    int matters = ARMED && ours_fd(fd, path); if (matters && fate()) return errno = control->error, -1; \
    int done = plain(fd); if (matters && !done) record(SYNC, path, 0, 0, 0, 0, 0); return done; }
ONE_FD(fsync)
ONE_FD(fdatasync)
int ftruncate(int fd, off_t length) { PLAIN(ftruncate); char path[PATH_MAX];
    int matters = ARMED && ours_fd(fd, path); if (matters && fate()) return errno = control->error, -1;
    int done = plain(fd, length); if (matters && !done) record(TRUNCATE, path, 0, length, 0, 0, 0); return done; }
int ftruncate64(int fd, off64_t length) { return ftruncate(fd, length); }
int posix_fallocate(int fd, off_t offset, off_t length) { PLAIN(posix_fallocate); char path[PATH_MAX];
    int matters = ARMED && ours_fd(fd, path); if (matters && fate()) return control->error;
    struct stat before; if (matters) fstat(fd, &before);
    int done = plain(fd, offset, length);
    if (matters && !done && offset + length > before.st_size) record(TRUNCATE, path, 0, offset + length, 0, 0, 0);
    return done; }
int posix_fallocate64(int fd, off64_t offset, off64_t length) { return posix_fallocate(fd, offset, length); }

/* Reading. */
static ssize_t got(int fd, const struct iovec *parts, int count, off_t offset, int positioned, int flags) {
    static ssize_t (*plain)(int, const struct iovec *, int);
    static ssize_t (*plain_at)(int, const struct iovec *, int, off_t, int);
    if (!plain) { plain_at = dlsym(RTLD_NEXT, "preadv2"); plain = dlsym(RTLD_NEXT, "readv"); }
    char path[PATH_MAX];
    struct iovec half;
    if (ARMED && control->reading && ours_fd(fd, path)) {
        int end = fate_of(1);
        if (end == -1) return -1;
        if (end == -2 && count) {
            half.iov_base = parts[0].iov_base; half.iov_len = parts[0].iov_len / 2;
            if (half.iov_len) { parts = &half; count = 1; }
        }
    }
    return positioned ? plain_at(fd, parts, count, offset, flags) : plain(fd, parts, count);
}
#define PART struct iovec part = {data, length}
ssize_t read(int fd, void *data, size_t length) { PLAIN(read); if (!ARMED) return plain(fd, data, length);
    PART; return got(fd, &part, 1, 0, 0, 0); }
ssize_t pread(int fd, void *data, size_t length, off_t offset) { PLAIN(pread); if (!ARMED) return plain(fd, data, length, offset);
    PART; return got(fd, &part, 1, offset, 1, 0); }
ssize_t pread64(int fd, void *data, size_t length, off64_t offset) { return pread(fd, data, length, offset); }
ssize_t readv(int fd, const struct iovec *parts, int count) { return got(fd, parts, count, 0, 0, 0); }
ssize_t preadv(int fd, const struct iovec *parts, int count, off_t offset) { return got(fd, parts, count, offset, 1, 0); }
ssize_t preadv64(int fd, const struct iovec *parts, int count, off64_t offset) { return got(fd, parts, count, offset, 1, 0); }
ssize_t preadv2(int fd, const struct iovec *parts, int count, off_t offset, int flags) { return got(fd, parts, count, offset, 1, flags); }
ssize_t preadv64v2(int fd, const struct iovec *parts, int count, off64_t offset, int flags) { return got(fd, parts, count, offset, 1, flags); }

static int hidden(const char *path) { return ARMED && control->reading && ours(path) && fate_of(1) ? (errno = control->error, 1) : 0; }
int stat(const char *path, struct stat *found) { PLAIN(stat); return hidden(path) ? -1 : plain(path, found); }
int lstat(const char *path, struct stat *found) { PLAIN(lstat); return hidden(path) ? -1 : plain(path, found); }
int stat64(const char *path, struct stat64 *found) { PLAIN(stat64); return hidden(path) ? -1 : plain(path, found); }
int lstat64(const char *path, struct stat64 *found) { PLAIN(lstat64); return hidden(path) ? -1 : plain(path, found); }
int fstatat(int folder, const char *path, struct stat *found, int flags) { PLAIN(fstatat); return hidden(path) ? -1 : plain(folder, path, found, flags); }
int statx(int folder, const char *path, int flags, unsigned mask, struct statx *found) { PLAIN(statx);
    return hidden(path) ? -1 : plain(folder, path, flags, mask, found); }
DIR *opendir(const char *path) { PLAIN(opendir); return hidden(path) ? 0 : plain(path); }

/* The clock, armed or not. */
int clock_gettime(clockid_t clock, struct timespec *now) { PLAIN(clock_gettime);
    int done = plain(clock, now);
    if (!done && control && clock == CLOCK_REALTIME) now->tv_sec += control->ahead;
    return done; }
int gettimeofday(struct timeval *now, void *zone) { PLAIN(gettimeofday);
    int done = plain(now, zone);
    if (!done && control) now->tv_sec += control->ahead;
    return done; }
time_t time(time_t *place) {
    struct timespec now; clock_gettime(CLOCK_REALTIME, &now);
    if (place) *place = now.tv_sec;
    return now.tv_sec; }
