/* A plugin that adds a profiler to another one. Defined before: TABLE_SIZE, the size that the
   profiler's table reports; OWN, 1 if the first call of `collect` returns bytes of its own; and
   REAL_PLUGIN, the path of the other plugin. */
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
struct error { const char* text; };
struct profiler { int running, recorded; };
struct destroy_error { size_t size; void* priv; struct error* error; };
struct message { size_t size; void* priv; const struct error* error; const char* message; size_t message_size; };
struct create { size_t size; const char* options; size_t options_size; struct profiler* profiler; };
struct handle { size_t size; struct profiler* profiler; };
struct collect { size_t size; struct profiler* profiler; uint8_t* buffer; size_t bytes; };
static struct error busy = {"another one is running"};
static struct profiler one;
static int alive;
/* A field, and the byte too many that plugins report. */
static uint8_t data[] = {0x0a, 3, 'x', 'y', 'z', 0};
static void destroy_error(struct destroy_error* a) { if (a->size != 24) __builtin_trap(); }
static void message(struct message* a) {
    if (a->size != 40) __builtin_trap();
    a->message = a->error->text;
    a->message_size = strlen(a->error->text);
}
static struct error* code(void* a) { return 0; }
static struct error* create(struct create* a) {
    if (alive) return &busy;
    if (a->size != 32 || a->options_size == 0) __builtin_trap();
    alive = 1;
    a->profiler = &one;
    return 0;
}
static struct error* destroy(struct handle* a) { alive = 0; one.running = one.recorded = 0; return 0; }
static struct error* start(struct handle* a) { a->profiler->running = 1; return 0; }
static struct error* stop(struct handle* a) {
    if (a->profiler->running) a->profiler->recorded = 1;
    a->profiler->running = 0;
    return 0;
}
static struct error* collect(struct collect* a) {
    if (a->size != 32 || !a->profiler->recorded) __builtin_trap();
    if (a->buffer) memcpy(a->buffer, data, sizeof data);
    else if (OWN) a->buffer = data;
    a->bytes = sizeof data;
    return 0;
}
static struct { size_t size; void* priv; void* f[8]; } table =
    {TABLE_SIZE, 0, {destroy_error, message, code, create, destroy, start, stop, collect}};
static struct { size_t size; int type; void* next; void* api; int64_t id; } extension = {40, 1, 0, &table, 0};
static struct { size_t size; void* ext; char rest[4096]; } api;
void* GetPjrtApi(void) {
    void* real = dlopen(REAL_PLUGIN, RTLD_NOW | RTLD_LOCAL);
    if (!real) return 0;
    void* (*get)(void) = (void* (*)(void))dlsym(real, "GetPjrtApi");
    size_t* from = get();
    memcpy(&api, from, *from);
    extension.next = api.ext;
    api.ext = &extension;
    return &api;
}
