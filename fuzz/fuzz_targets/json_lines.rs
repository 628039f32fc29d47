#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    halite_tests::fuzz::run_libfuzzer("json_lines", data);
});
