//! Code that must not compile, with the compiler's errors. `TRYBUILD=overwrite` writes the expected
//! texts.

#[test]
fn derive_errors_are_explained() {
    trybuild::TestCases::new().compile_fail("tests/ui/derive_tree/*.rs");
}
