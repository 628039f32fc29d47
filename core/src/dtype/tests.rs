//! Tests of the table of element types.

use std::{collections::HashSet, fmt::Debug, hash::Hash};

use super::{DType, ElementType, float8};

/// The values of a column, all of them different, each of which finds its type.
#[track_caller]
fn check<V: Copy + Debug + Eq + Hash>(
    value_of: impl Fn(ElementType) -> Option<V>,
    type_of: impl Fn(V) -> Option<ElementType>,
    dtype_of: impl Fn(V) -> Option<DType>,
) -> usize {
    let mut seen = HashSet::new();
    for ty in ElementType::ALL {
        if let Some(value) = value_of(ty) {
            assert!(seen.insert(value), "{ty}: {value:?} is another's too");
            assert_eq!(type_of(value), Some(ty), "{value:?}");
            assert_eq!(dtype_of(value), ty.dtype(), "{value:?}");
        }
    }
    seen.len()
}

#[test]
fn names_are_unique() {
    use {DType as D, ElementType as E};
    let types = E::ALL.len();
    let by_mlir = |name| E::from_name(name).and_then(E::dtype);
    assert_eq!(check(|ty| Some(ty.name()), E::from_name, by_mlir), types);
    let halite = check(
        |ty| ty.dtype().map(D::name),
        |name| D::from_name(name).map(E::from),
        D::from_name,
    );
    assert_eq!(halite, D::ALL.len());
    check(E::hlo_name, E::from_hlo_name, D::from_hlo_name);
    check(
        E::safetensors_name,
        E::from_safetensors_name,
        D::from_safetensors_name,
    );
    check(E::numpy_name, E::from_numpy_name, D::from_numpy_name);
    check(E::torch_name, E::from_torch_name, D::from_torch_name);
    check(
        E::torch_storage_name,
        E::from_torch_storage_name,
        D::from_torch_storage_name,
    );
}

#[test]
fn numbers_are_unique() {
    use {DType as D, ElementType as E};
    let pjrt = check(E::pjrt_number, E::from_pjrt_number, D::from_pjrt_number);
    assert_eq!(pjrt, E::ALL.len());
    check(E::hlo_number, E::from_hlo_number, D::from_hlo_number);
    check(
        E::builtin_number,
        E::from_builtin_number,
        D::from_builtin_number,
    );
    check(E::vhlo_number, E::from_vhlo_number, D::from_vhlo_number);
    check(E::jax_number, E::from_jax_number, D::from_jax_number);
}

#[test]
fn every_type_but_complex_has_a_code_in_artifacts() {
    for ty in ElementType::ALL {
        let is_complex = ty.part().is_some();
        assert_eq!(ty.vhlo_number().is_none(), is_complex, "{ty}");
        assert_eq!(ty.vhlo_since().is_none(), is_complex, "{ty}");
    }
}

#[test]
fn formats_fill_their_bits() {
    for ty in ElementType::ALL {
        if let Some(format) = ty.float_format() {
            let bits = format.exponent_bits + format.mantissa_bits + u32::from(format.is_signed);
            assert_eq!(bits as usize, ty.bits(), "{ty}");
        }
        if let Some(part) = ty.part() {
            assert_eq!(2 * part.bits(), ty.bits(), "{ty}");
        }
    }
}

#[test]
fn values_are_those_of_the_specifications() {
    let check = |dtype, bits, expected: f64| assert_eq!(float8(dtype, bits), Some(expected));
    check(DType::F8E4M3Fn, 0x7e, 448.0);
    check(DType::F8E4M3Fn, 0x01, 2f64.powi(-9));
    check(DType::F8E4M3Fn, 0xb8, -1.0);
    check(DType::F8E4M3, 0x77, 240.0);
    check(DType::F8E4M3, 0x78, f64::INFINITY);
    check(DType::F8E5M2, 0x7b, 57344.0);
    check(DType::F8E5M2, 0xfc, f64::NEG_INFINITY);
    check(DType::F8E3M4, 0x6f, 15.5);
    check(DType::F8E4M3Fnuz, 0x7f, 240.0);
    check(DType::F8E4M3B11Fnuz, 0x7f, 30.0);
    check(DType::F8E5M2Fnuz, 0x7f, 57344.0);
    check(DType::F8E8M0Fnu, 0x7f, 1.0);
    assert!(float8(DType::F8E4M3Fn, 0xff).unwrap().is_nan());
    assert!(float8(DType::F8E5M2Fnuz, 0x80).unwrap().is_nan());
    assert!(float8(DType::F8E8M0Fnu, 0xff).unwrap().is_nan());
    assert_eq!(float8(DType::U8, 1), None);
}

#[test]
fn extremes_are_those_of_the_specifications() {
    let largest = |ty: ElementType| {
        let format = ty.float_format().unwrap();
        format.decode(format.largest())
    };
    assert_eq!(largest(ElementType::F16), 65504.0);
    assert_eq!(largest(ElementType::F8E4M3Fn), 448.0);
    assert_eq!(largest(ElementType::F8E4M3), 240.0);
    assert_eq!(largest(ElementType::F8E5M2), 57344.0);
    assert_eq!(largest(ElementType::F8E4M3Fnuz), 240.0);
    assert_eq!(largest(ElementType::F8E4M3B11Fnuz), 30.0);
    assert_eq!(largest(ElementType::F8E3M4), 15.5);
    assert_eq!(largest(ElementType::F4E2M1Fn), 6.0);
    assert_eq!(largest(ElementType::F6E2M3Fn), 7.5);
    assert_eq!(largest(ElementType::F6E3M2Fn), 28.0);
}
