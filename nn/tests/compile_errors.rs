//! What must not compile, and what the compiler says about it. `TRYBUILD=overwrite` writes the
//! expected texts.

#[test]
fn a_tensor_stays_in_its_trace_and_a_donated_array_is_gone() {
    trybuild::TestCases::new().compile_fail("tests/ui/*.rs");
}
