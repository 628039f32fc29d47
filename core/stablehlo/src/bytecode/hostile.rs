//! Tests of small artifacts that describe something huge, endless or contradictory.

use expect_test::{Expect, expect};
use halite_core::Result;

use super::{
    encode::Form,
    encoder::Encoder,
    file::file,
    interned::{BUILTIN, Tables, VHLO},
    sections::{part, section},
};
use crate::{Attribute, Dense, ElementType, Module, RankedType, Type, Version};

/// Reads a module without functions that has the attribute with this index as `a`.
fn with_attribute(mut tables: Tables, attribute: usize) -> Result<Module> {
    let name = tables
        .attribute(&Attribute::Str("a".into()), Form::Builtin)
        .unwrap();
    let mut dictionary = Encoder::default();
    dictionary.size(1).size(1).size(name).size(attribute);
    let dictionary = tables.entry(BUILTIN, dictionary);
    let mut ir = Encoder::default();
    ir.flagged(1, false).size(tables.name(BUILTIN, "module"));
    ir.byte(part::ATTRIBUTES | part::REGIONS)
        .size(tables.location(None))
        .size(dictionary);
    let mut body = Encoder::default();
    body.size(1).size(0).flagged(0, false);
    ir.flagged(1, true).section(section::IR, &body);
    Module::from_bytecode(&file(tables, &ir).0)
}

#[track_caller]
fn check(read: Result<Module>, expected: Expect) {
    expected.assert_eq(&read.unwrap_err().to_string());
}

fn tables() -> Tables {
    Tables::new(Version::new(1, 17, 0))
}

fn list(tables: &mut Tables, items: &[usize]) -> usize {
    let mut list = Encoder::default();
    list.varint(1).indices(items);
    tables.entry(VHLO, list)
}

#[test]
fn attribute_that_contains_itself_is_an_error() {
    let mut tables = tables();
    let attribute = list(&mut tables, &[0]);
    check(
        with_attribute(tables, attribute),
        expect!["bytecode: byte 49: attributes nest deeper than 64, or contain themselves"],
    );
}

#[test]
fn attributes_that_double_forty_times_are_an_error() {
    let mut tables = tables();
    let mut attribute = list(&mut tables, &[]);
    for _ in 0..40 {
        attribute = list(&mut tables, &[attribute; 2]);
    }
    check(
        with_attribute(tables, attribute),
        expect![
            "bytecode: byte 160: attributes and types need too much memory; they repeat each other too often"
        ],
    );
}

#[test]
fn constant_of_huge_type_is_an_error() {
    let mut tables = tables();
    let ty = RankedType::new(ElementType::F32, [1 << 40, 1 << 40]);
    let ty = tables.ty(&Type::Tensor(ty), Form::Vhlo).unwrap();
    let mut constant = Encoder::default();
    constant.varint(15).size(ty).size(4).bytes(&[0; 4]);
    let attribute = tables.entry(VHLO, constant);
    check(
        with_attribute(tables, attribute),
        expect![
            "bytecode: byte 67: tensor<1099511627776x1099511627776xf32> does not fit the address space"
        ],
    );
}

#[test]
fn splat_of_large_type_is_one_element() {
    let mut tables = tables();
    let ty = RankedType::new(ElementType::F32, [99_999_999_999]);
    let dense = Dense {
        ty,
        bytes: [0; 4].into(),
    };
    let value = Attribute::Dense(dense);
    let index = tables.attribute(&value, Form::Vhlo).unwrap();
    let module = with_attribute(tables, index).unwrap();
    assert_eq!(module.attributes.get("a"), Some(&value));
}

/// A module whose function has `depth` regions in each other.
fn nested(depth: usize) -> (Tables, Encoder) {
    let mut tables = tables();
    let location = tables.location(None);
    let case = tables.name(VHLO, "case_v1");
    let function = tables.name(VHLO, "func_v1");
    let module = tables.name(BUILTIN, "module");
    let mut properties = Encoder::default();
    let nothing = list(&mut tables, &[]);
    let name = tables
        .attribute(&Attribute::Str("main".into()), Form::Vhlo)
        .unwrap();
    let ty = tables.function_type(&[], &[]);
    properties
        .size(nothing)
        .size(ty)
        .size(nothing)
        .size(name)
        .size(name);
    let properties = tables.properties.index(properties);
    let mut body = Encoder::default();
    body.size(1).size(0).flagged(1, false);
    body.size(function)
        .byte(part::REGIONS | part::PROPERTIES)
        .size(location)
        .size(properties)
        .flagged(1, false);
    for _ in 0..depth {
        body.size(1).size(0).flagged(2, false);
        body.size(case)
            .byte(part::REGIONS)
            .size(location)
            .flagged(1, false);
    }
    let mut ir = Encoder::default();
    ir.flagged(1, false)
        .size(module)
        .byte(part::REGIONS)
        .size(location);
    ir.flagged(1, true).section(section::IR, &body);
    (tables, ir)
}

#[test]
fn regions_of_any_depth_are_an_error() {
    let (tables, ir) = nested(100_000);
    check(
        Module::from_bytecode(&file(tables, &ir).0),
        expect!["bytecode: byte 785: regions nest deeper than 100"],
    );
}

#[test]
fn second_section_is_an_error() {
    let mut bytes = Encoder::default();
    bytes
        .bytes(b"ML\xefR")
        .varint(6)
        .bytes(b"StableHLO_v1.0.0\0");
    bytes
        .section(4, &Encoder::default())
        .section(4, &Encoder::default());
    check(
        Module::from_bytecode(&bytes.0),
        expect!["bytecode: byte 24: a second section 4"],
    );
}
