//! What must not compile, and what the compiler says about it. `TRYBUILD=overwrite` writes the
//! expected texts.

#[test]
fn mistakes_with_derived_trees_are_explained() {
    trybuild::TestCases::new().compile_fail("tests/ui/derive_tree/*.rs");
}
