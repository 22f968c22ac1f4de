/* Preloaded into a process, fails allocations of its choice: malloc and its kin return NULL. For glibc. */
#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>

void *__libc_malloc(size_t);
void *__libc_calloc(size_t, size_t);
void *__libc_realloc(void *, size_t);
void *__libc_memalign(size_t, size_t);

static atomic_long count, first = -1, last = -1;

/* Begin to count, and fail the allocations from one number to another. Returns how many there were since the last. */
long fail_allocations(long from, long to) {
    first = last = -1;
    long before = atomic_exchange(&count, 0);
    last = to;
    first = from;
    return before;
}

static int fails(void) {
    long number = atomic_fetch_add(&count, 1);
    return first >= 0 && number >= first && number <= last;
}

void *malloc(size_t size) { return fails() ? (errno = ENOMEM, NULL) : __libc_malloc(size); }
void *calloc(size_t n, size_t size) { return fails() ? (errno = ENOMEM, NULL) : __libc_calloc(n, size); }
void *realloc(void *old, size_t size) { return fails() ? (errno = ENOMEM, NULL) : __libc_realloc(old, size); }
void *memalign(size_t to, size_t size) { return fails() ? (errno = ENOMEM, NULL) : __libc_memalign(to, size); }
void *aligned_alloc(size_t to, size_t size) { return memalign(to, size); }
int posix_memalign(void **out, size_t to, size_t size) {
    return (*out = memalign(to, size)) ? 0 : ENOMEM;
}
