//! Code that must not compile, with the compiler's errors. `TRYBUILD=overwrite` writes the expected
//! texts.

#[test]
fn misuse_of_tensors_does_not_compile() {
    trybuild::TestCases::new().compile_fail("tests/ui/*.rs");
}
