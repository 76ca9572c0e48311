/* Faults of a disk, for tests: preloaded into a server, it makes calls of the C library fail.
 *
 * The environment variable PARTITA_FAULTS names a file of orders, which may come and go while the server runs:
 * one a line, "CALL ERRNO PATH" ("fdatasync 5 /log/"): calls of that name fail with that errno when the file's path
 * contains PATH. Without the file nothing fails. Calls: fsync, fdatasync, read, pread, write, pwrite, open.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

/* The errno that a call about a path is to fail with; 0: it is not to fail. */
static int ordered(const char *call, const char *path) {
    const char *orders = getenv("PARTITA_FAULTS");
    if (!orders) return 0;
    /* Not by way of the calls that are replaced here. */
    int file = (int)syscall(SYS_openat, AT_FDCWD, orders, O_RDONLY | O_CLOEXEC);
    if (file < 0) return 0;
    char text[1024];
    ssize_t bytes = syscall(SYS_read, file, text, sizeof text - 1);
    syscall(SYS_close, file);
    if (bytes <= 0) return 0;
    text[bytes] = 0;
    char *rest = NULL;
    for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        char name[32], part[512];
        int code;
        if (sscanf(line, "%31s %d %511s", name, &code, part) == 3 && strcmp(name, call) == 0 &&
            strstr(path, part))
            return code;
    }
    return 0;
}

static int ordered_of(const char *call, int fd) {
    char link[64], path[4096];
    if (!getenv("PARTITA_FAULTS")) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t bytes = readlink(link, path, sizeof path - 1);
    if (bytes <= 0) return 0;
    path[bytes] = 0;
    return ordered(call, path);
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define FAIL_IF(code) \
    do { \
        int ordered_code = (code); \
        if (ordered_code) { \
            errno = ordered_code; \
            return -1; \
        } \
    } while (0)

int fsync(int fd) {
    FAIL_IF(ordered_of("fsync", fd));
    return REAL(fsync)(fd);
}

int fdatasync(int fd) {
    FAIL_IF(ordered_of("fdatasync", fd));
    return REAL(fdatasync)(fd);
}

ssize_t read(int fd, void *data, size_t bytes) {
    FAIL_IF(ordered_of("read", fd));
    return REAL(read)(fd, data, bytes);
}

ssize_t pread(int fd, void *data, size_t bytes, off_t offset) {
    FAIL_IF(ordered_of("pread", fd));
    return REAL(pread)(fd, data, bytes, offset);
}

ssize_t pread64(int fd, void *data, size_t bytes, off64_t offset) {
    FAIL_IF(ordered_of("pread", fd));
    return REAL(pread64)(fd, data, bytes, offset);
}

ssize_t write(int fd, const void *data, size_t bytes) {
    FAIL_IF(ordered_of("write", fd));
    return REAL(write)(fd, data, bytes);
}

ssize_t pwrite(int fd, const void *data, size_t bytes, off_t offset) {
    FAIL_IF(ordered_of("pwrite", fd));
    return REAL(pwrite)(fd, data, bytes, offset);
}

ssize_t pwrite64(int fd, const void *data, size_t bytes, off64_t offset) {
    FAIL_IF(ordered_of("pwrite", fd));
    return REAL(pwrite64)(fd, data, bytes, offset);
}

static mode_t mode_of(int flags, va_list arguments) {
    return flags & (O_CREAT | O_TMPFILE) ? (mode_t)va_arg(arguments, int) : 0;
}

int open(const char *path, int flags, ...) {
    va_list arguments;
    va_start(arguments, flags);
    mode_t mode = mode_of(flags, arguments);
    va_end(arguments);
    FAIL_IF(ordered("open", path));
    return REAL(open)(path, flags, mode);
}

int open64(const char *path, int flags, ...) {
    va_list arguments;
    va_start(arguments, flags);
    mode_t mode = mode_of(flags, arguments);
    va_end(arguments);
    FAIL_IF(ordered("open", path));
    return REAL(open64)(path, flags, mode);
}
