/* A PJRT plugin with one fault: the real CPU plugin behind a table in which single functions are replaced.
 *
 * Built by library.rs with -DREAL="path of the real plugin" and -DFAULT="name". `offsets.h` is written by
 * library.rs from the layouts of halite-pjrt-sys: SLOT_function is the offset of a function in the table,
 * AT_struct_field that of a field in a struct of arguments, SIZE_struct the struct's `struct_size`.
 */
#include "offsets.h"
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <unwind.h>

#define FIELD(type, args, struct_, field) (*(type *)((char *)(args) + AT_##struct_##_##field))
#define HUGE_SIZE ((size_t)1 << 50)

typedef void *function(void *);
typedef void callback(void *error, void *user_arg);

static char table[1 << 16];
static char *original;

/* Whether the fault is this one. */
static int is(const char *name) { return strcmp(FAULT, name) == 0; }

/* Whether the fault is at this place: FAULT is `place:what`. */
static int at(const char *place) {
    size_t length = strlen(place);
    return strncmp(FAULT, place, length) == 0 && FAULT[length] == ':';
}

static void *real(size_t slot, void *args) {
    function *found;
    memcpy(&found, original + slot, sizeof found);
    return found(args);
}

static void replace(size_t slot, function *with) { memcpy(table + slot, &with, sizeof with); }

/* An error of this library's own; the real plugin never sees it. */
static const char an_error[16];

static void *happens(void) {
    const char *what = strchr(FAULT, ':') + 1;
    if (strcmp(what, "sleep") == 0)
        for (;;) sleep(1000);
    if (strcmp(what, "abort") == 0) {
        fprintf(stderr, "F0000 fault_plugin.cc:7] Check failed: %s\n", FAULT);
        abort();
    }
    if (strcmp(what, "crash") == 0) *(volatile int *)8 = 1;
    if (strcmp(what, "exit") == 0) exit(0);
    if (strcmp(what, "throw") == 0) {
        /* What a C++ exception is to everybody but C++. */
        static struct _Unwind_Exception exception;
        memcpy(&exception.exception_class, "HALITEXX", 8);
        _Unwind_RaiseException(&exception);
        abort();
    }
    return (void *)an_error; /* `error`, and the texts below */
}

static void *error_message(void *args) {
    if (FIELD(void *, args, PJRT_Error_Message_Args, error) != (void *)an_error)
        return real(SLOT_PJRT_Error_Message, args);
    static char huge[1 << 20];
    const char *text = "refused on purpose";
    size_t size;
    if (strstr(FAULT, ":escapes")) text = "\x1b]0;owned\x07\x1b[2J\x1b[31mred \xe2\x80\xae text";
    if (strstr(FAULT, ":not-utf8")) text = "\xff\xfe\x80 in Latin-1: \xe9";
    size = strlen(text);
    if (strstr(FAULT, ":huge")) {
        memset(huge, 'x', sizeof huge);
        text = huge, size = sizeof huge;
    }
    if (strstr(FAULT, ":lying")) size = HUGE_SIZE;
    FIELD(const char *, args, PJRT_Error_Message_Args, message) = text;
    FIELD(size_t, args, PJRT_Error_Message_Args, message_size) = size;
    return 0;
}
static void *error_code(void *args) {
    if (FIELD(void *, args, PJRT_Error_GetCode_Args, error) != (void *)an_error)
        return real(SLOT_PJRT_Error_GetCode, args);
    FIELD(int, args, PJRT_Error_GetCode_Args, code) = 13;
    return 0;
}
static void *error_destroy(void *args) {
    return FIELD(void *, args, PJRT_Error_Destroy_Args, error) == (void *)an_error ? 0
        : real(SLOT_PJRT_Error_Destroy, args);
}

/* Faults at a place, before the real function. */
#define PLACE(name, slot) \
    static void *name(void *args) { \
        void *error = happens(); \
        return error ? error : real(SLOT_##slot, args); \
    }
PLACE(initialize, PJRT_Plugin_Initialize)
PLACE(create, PJRT_Client_Create)
PLACE(destroy, PJRT_Client_Destroy)
PLACE(compile, PJRT_Client_Compile)
PLACE(execute, PJRT_LoadedExecutable_Execute)
PLACE(upload, PJRT_Client_BufferFromHostBuffer)

static void *no_devices(void *args) {
    void *error = real(SLOT_PJRT_Client_Devices, args);
    FIELD(size_t, args, PJRT_Client_Devices_Args, num_devices) = 0;
    return error;
}
static void *many_devices(void *args) {
    void *error = real(SLOT_PJRT_Client_Devices, args);
    FIELD(size_t, args, PJRT_Client_Devices_Args, num_devices) = HUGE_SIZE;
    return error;
}
static void *same_id(void *args) {
    FIELD(int, args, PJRT_DeviceDescription_Id_Args, id) = 0;
    return 0;
}
static void *many_attributes(void *args) {
    void *error = real(SLOT_PJRT_DeviceDescription_Attributes, args);
    FIELD(void *, args, PJRT_DeviceDescription_Attributes_Args, attributes) = table;
    FIELD(size_t, args, PJRT_DeviceDescription_Attributes_Args, num_attributes) = HUGE_SIZE;
    return error;
}
static void *escapes_in_kind(void *args) {
    static const char kind[] = "\x1b]0;owned\x07" "cpu";
    FIELD(const char *, args, PJRT_DeviceDescription_Kind_Args, device_kind) = kind;
    FIELD(size_t, args, PJRT_DeviceDescription_Kind_Args, device_kind_size) = sizeof kind - 1;
    return 0;
}
static void *large_program(void *args) {
    void *error = real(SLOT_PJRT_Executable_OptimizedProgram, args);
    void *program = FIELD(void *, args, PJRT_Executable_OptimizedProgram_Args, program);
    FIELD(size_t, program, PJRT_Program, code_size) = HUGE_SIZE;
    return error;
}
static void *large_serialized(void *args) {
    void *error = real(SLOT_PJRT_Executable_Serialize, args);
    FIELD(size_t, args, PJRT_Executable_Serialize_Args, serialized_bytes_size) = HUGE_SIZE;
    return error;
}

static size_t outputs_of(void *loaded) {
    char get[SIZE_PJRT_LoadedExecutable_GetExecutable_Args + 16] = { 0 };
    char count[SIZE_PJRT_Executable_NumOutputs_Args + 16] = { 0 };
    char destroy[SIZE_PJRT_Executable_Destroy_Args + 16] = { 0 };
    *(size_t *)get = SIZE_PJRT_LoadedExecutable_GetExecutable_Args;
    FIELD(void *, get, PJRT_LoadedExecutable_GetExecutable_Args, loaded_executable) = loaded;
    real(SLOT_PJRT_LoadedExecutable_GetExecutable, get);
    void *executable = FIELD(void *, get, PJRT_LoadedExecutable_GetExecutable_Args, executable);
    *(size_t *)count = SIZE_PJRT_Executable_NumOutputs_Args;
    FIELD(void *, count, PJRT_Executable_NumOutputs_Args, executable) = executable;
    real(SLOT_PJRT_Executable_NumOutputs, count);
    *(size_t *)destroy = SIZE_PJRT_Executable_Destroy_Args;
    FIELD(void *, destroy, PJRT_Executable_Destroy_Args, executable) = executable;
    real(SLOT_PJRT_Executable_Destroy, destroy);
    return FIELD(size_t, count, PJRT_Executable_NumOutputs_Args, num_outputs);
}
static void *missing_output(void *args) {
    void *error = real(SLOT_PJRT_LoadedExecutable_Execute, args);
    if (!error) FIELD(void ***, args, PJRT_LoadedExecutable_Execute_Args, output_lists)[0][0] = 0;
    return error;
}
static void *same_output(void *args) {
    void *error = real(SLOT_PJRT_LoadedExecutable_Execute, args);
    void *loaded = FIELD(void *, args, PJRT_LoadedExecutable_Execute_Args, executable);
    size_t count = outputs_of(loaded);
    void **outputs = FIELD(void ***, args, PJRT_LoadedExecutable_Execute_Args, output_lists)[0];
    if (!error && count > 1) outputs[1] = outputs[0];
    return error;
}
static void *argument_output(void *args) {
    void *error = real(SLOT_PJRT_LoadedExecutable_Execute, args);
    size_t count = FIELD(size_t, args, PJRT_LoadedExecutable_Execute_Args, num_args);
    if (!error && count)
        FIELD(void ***, args, PJRT_LoadedExecutable_Execute_Args, output_lists)[0][0] =
            FIELD(void ***, args, PJRT_LoadedExecutable_Execute_Args, argument_lists)[0][0];
    return error;
}

static void *never_ready(void *args) {
    FIELD(char, args, PJRT_Event_IsReady_Args, is_ready) = 0;
    return 0;
}
static void *never_awaited(void *args) {
    (void)args;
    for (;;) sleep(1000);
}
static void *never_called(void *args) {
    (void)args;
    return 0;
}

struct twice {
    callback *callback;
    void *user_arg;
};
static void call_twice(void *error, void *user_arg) {
    struct twice *it = user_arg;
    it->callback(error, it->user_arg);
    it->callback(0, it->user_arg);
}
static void *calls_twice(void *args) {
    struct twice *it = malloc(sizeof *it);
    it->callback = FIELD(callback *, args, PJRT_Event_OnReady_Args, callback);
    it->user_arg = FIELD(void *, args, PJRT_Event_OnReady_Args, user_arg);
    FIELD(callback *, args, PJRT_Event_OnReady_Args, callback) = call_twice;
    FIELD(void *, args, PJRT_Event_OnReady_Args, user_arg) = it;
    return real(SLOT_PJRT_Event_OnReady, args);
}
static void *calls_and_fails(void *args) {
    real(SLOT_PJRT_Event_OnReady, args);
    return (void *)an_error;
}
static void *refuses_callbacks(void *args) {
    (void)args;
    return (void *)an_error;
}
static void *no_read_event(void *args) {
    void *error = real(SLOT_PJRT_Buffer_ToHostBuffer, args);
    FIELD(void *, args, PJRT_Buffer_ToHostBuffer_Args, event) = 0;
    return error;
}
static void *no_done_event(void *args) {
    void *error = real(SLOT_PJRT_Client_BufferFromHostBuffer, args);
    FIELD(void *, args, PJRT_Client_BufferFromHostBuffer_Args, done_with_host_buffer) = 0;
    return error;
}

__attribute__((constructor)) static void constructor(void) {
    if (at("constructor")) happens();
}

void *GetPjrtApi(void) {
    if (at("get")) happens();
    if (is("null-table")) return 0;
    void *library = dlopen(REAL, RTLD_NOW | RTLD_LOCAL);
    void *(*get)(void);
    *(void **)&get = dlsym(library, "GetPjrtApi");
    original = get();
    memcpy(table, original, *(size_t *)original);
    if (is("tiny-table")) *(size_t *)table = 8;

    replace(SLOT_PJRT_Error_Message, error_message);
    replace(SLOT_PJRT_Error_GetCode, error_code);
    replace(SLOT_PJRT_Error_Destroy, error_destroy);
    if (at("initialize")) replace(SLOT_PJRT_Plugin_Initialize, initialize);
    if (at("create")) replace(SLOT_PJRT_Client_Create, create);
    if (at("destroy")) replace(SLOT_PJRT_Client_Destroy, destroy);
    if (at("compile")) replace(SLOT_PJRT_Client_Compile, compile);
    if (at("execute")) replace(SLOT_PJRT_LoadedExecutable_Execute, execute);
    if (at("upload")) replace(SLOT_PJRT_Client_BufferFromHostBuffer, upload);
    if (is("no-devices")) replace(SLOT_PJRT_Client_Devices, no_devices);
    if (is("many-devices")) replace(SLOT_PJRT_Client_Devices, many_devices);
    if (is("same-ids")) replace(SLOT_PJRT_DeviceDescription_Id, same_id);
    if (is("many-attributes")) replace(SLOT_PJRT_DeviceDescription_Attributes, many_attributes);
    if (is("escapes-in-kind")) replace(SLOT_PJRT_DeviceDescription_Kind, escapes_in_kind);
    if (is("large-program")) replace(SLOT_PJRT_Executable_OptimizedProgram, large_program);
    if (is("large-serialized")) replace(SLOT_PJRT_Executable_Serialize, large_serialized);
    if (is("missing-output")) replace(SLOT_PJRT_LoadedExecutable_Execute, missing_output);
    if (is("same-output")) replace(SLOT_PJRT_LoadedExecutable_Execute, same_output);
    if (is("argument-output")) replace(SLOT_PJRT_LoadedExecutable_Execute, argument_output);
    if (is("never-ready")) {
        replace(SLOT_PJRT_Event_IsReady, never_ready);
        replace(SLOT_PJRT_Event_Await, never_awaited);
        replace(SLOT_PJRT_Event_OnReady, never_called);
    }
    if (is("calls-twice")) replace(SLOT_PJRT_Event_OnReady, calls_twice);
    if (is("calls-and-fails")) replace(SLOT_PJRT_Event_OnReady, calls_and_fails);
    if (is("refuses-callbacks")) replace(SLOT_PJRT_Event_OnReady, refuses_callbacks);
    if (is("no-read-event")) replace(SLOT_PJRT_Buffer_ToHostBuffer, no_read_event);
    if (is("no-done-event")) replace(SLOT_PJRT_Client_BufferFromHostBuffer, no_done_event);
    return table;
}
