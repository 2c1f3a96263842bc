#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| weir_fuzz::hpack_h2::run(data));
