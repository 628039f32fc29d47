//! Mutations of valid programs: each verifies or is an error, and none panics.

use std::sync::LazyLock;

use halite_stablehlo::{
    Attribute, Attributes, ElementType, Module, OpKind, RankedType, Region, Type, ValueId, ValueIds,
};
use proptest::{prelude::*, sample::Index};

use crate::programs::{program::Edit, valid};

/// Sizes that overflow, or that are close to those of the programs.
const SIZES: [i64; 10] = [-1, 0, 1, 2, 3, 5, 1 << 31, 1 << 62, i64::MAX, i64::MIN];

#[derive(Clone, Debug)]
enum Mutation {
    Operand {
        place: Index,
        value: Index,
    },
    DropOperand {
        place: Index,
    },
    Result {
        place: Index,
        value: Index,
    },
    DropResult {
        place: Index,
    },
    DropRegion {
        place: Index,
    },
    RegionResult {
        value: Index,
    },
    Dim {
        value: Index,
        dim: Index,
        size: usize,
    },
    AddDim {
        value: Index,
        size: usize,
    },
    DropDim {
        value: Index,
    },
    Element {
        value: Index,
        element: ElementType,
    },
    Token {
        value: Index,
    },
    Attribute {
        attribute: Index,
        item: Index,
        number: i64,
    },
    DropItem {
        attribute: Index,
        item: Index,
    },
    DropAttribute {
        attribute: Index,
    },
    Processes {
        count: i64,
    },
}

fn mutation() -> impl Strategy<Value = Mutation> {
    let index = any::<Index>;
    let number = || prop::sample::select(&SIZES[..]);
    let size = || number().prop_map(|number| number as usize);
    prop_oneof![
        1 => (index(), index()).prop_map(|(place, value)| Mutation::Operand { place, value }),
        1 => index().prop_map(|place| Mutation::DropOperand { place }),
        1 => (index(), index()).prop_map(|(place, value)| Mutation::Result { place, value }),
        1 => index().prop_map(|place| Mutation::DropResult { place }),
        1 => index().prop_map(|place| Mutation::DropRegion { place }),
        1 => index().prop_map(|value| Mutation::RegionResult { value }),
        1 => (index(), index(), size())
            .prop_map(|(value, dim, size)| Mutation::Dim { value, dim, size }),
        1 => (index(), size()).prop_map(|(value, size)| Mutation::AddDim { value, size }),
        1 => index().prop_map(|value| Mutation::DropDim { value }),
        1 => (index(), prop::sample::select(&ElementType::ALL[..]))
            .prop_map(|(value, element)| Mutation::Element { value, element }),
        1 => index().prop_map(|value| Mutation::Token { value }),
        5 => (index(), index(), number()).prop_map(|(attribute, item, number)| {
            Mutation::Attribute { attribute, item, number }
        }),
        2 => (index(), index())
            .prop_map(|(attribute, item)| Mutation::DropItem { attribute, item }),
        1 => index().prop_map(|attribute| Mutation::DropAttribute { attribute }),
        1 => number().prop_map(|count| Mutation::Processes { count }),
    ]
}

/// Applies a mutation, if the program has what it changes.
fn mutate(module: &mut Module, mutation: &Mutation) {
    let values = module.main_mut().types.len();
    let pick = |value: &Index| ValueId(value.index(values + 1) as u32);
    let ty = |module: &mut Module, value: &Index| -> Option<RankedType> {
        module.main_mut().types[value.index(values)]
            .as_tensor()
            .cloned()
    };
    match mutation {
        Mutation::Operand { place, value } => set(&mut module.op().operands, place, pick(value)),
        Mutation::Result { place, value } => set(&mut module.op().results, place, pick(value)),
        Mutation::DropOperand { place } => remove_value(&mut module.op().operands, place),
        Mutation::DropResult { place } => remove_value(&mut module.op().results, place),
        Mutation::DropRegion { place } => remove(&mut module.op().regions, place),
        Mutation::RegionResult { value } => {
            if let Some(Region { results, .. }) = module.op().regions.first_mut() {
                set(results, value, pick(value));
            }
        }
        Mutation::Processes { count } => {
            let count = Attribute::Int(*count, ElementType::S32);
            module.attributes.take("mhlo.num_partitions");
            module.attributes.push("mhlo.num_partitions", count);
        }
        Mutation::Token { value } => module.main_mut().types[value.index(values)] = Type::Token,
        Mutation::Dim { value, .. }
        | Mutation::AddDim { value, .. }
        | Mutation::DropDim { value }
        | Mutation::Element { value, .. } => {
            if let Some(mut ty) = ty(module, value) {
                mutate_type(&mut ty, mutation);
                module.main_mut().types[value.index(values)] = Type::Tensor(ty);
            }
        }
        Mutation::Attribute { .. } | Mutation::DropItem { .. } | Mutation::DropAttribute { .. } => {
            mutate_attributes(module, mutation)
        }
    }
}

fn mutate_type(ty: &mut RankedType, mutation: &Mutation) {
    match mutation {
        Mutation::Dim { dim, size, .. } => set(&mut ty.dims, dim, *size),
        Mutation::AddDim { size, .. } => ty.dims.push(*size),
        Mutation::DropDim { .. } => _ = ty.dims.pop(),
        Mutation::Element { element, .. } => ty.element = *element,
        _ => {}
    }
}

/// Changes the attributes that define an operation, unless no operation has the new ones.
fn mutate_attributes(module: &mut Module, mutation: &Mutation) {
    let operand = module.op().operands.first().copied();
    let operand = operand.and_then(|value| module.main_mut().types.get(value.0 as usize).cloned());
    let op = module.op();
    let (name, mut attributes) = op.kind.to_attributes();
    let named = |attributes: &mut Attributes, index: &Index| {
        let count = attributes.0.len();
        (count > 0).then(|| attributes.0.swap_remove(index.index(count)))
    };
    match mutation {
        Mutation::DropAttribute { attribute } => drop(named(&mut attributes, attribute)),
        Mutation::Attribute {
            attribute,
            item,
            number,
        } => {
            let Some((name, mut value)) = named(&mut attributes, attribute) else {
                return;
            };
            edit_numbers(&mut value, |numbers| set(numbers, item, *number));
            attributes.push(name, value);
        }
        Mutation::DropItem { attribute, item } => {
            let Some((name, mut value)) = named(&mut attributes, attribute) else {
                return;
            };
            edit_numbers(&mut value, |numbers| remove(numbers, item));
            attributes.push(name, value);
        }
        _ => {}
    }
    if let Ok(kind) = OpKind::from_attributes(name, &mut attributes, operand.as_ref()) {
        op.kind = kind;
    }
}

/// Edits the numbers of an attribute; a matrix keeps its number of columns.
fn edit_numbers(value: &mut Attribute, edit: impl FnOnce(&mut Vec<i64>)) {
    match value {
        Attribute::Int(number, _) => {
            let mut numbers = vec![*number];
            edit(&mut numbers);
            *number = numbers.first().copied().unwrap_or_default();
        }
        Attribute::Dense(dense) if dense.ty.element == ElementType::S64 => {
            let numbers = dense.bytes.chunks_exact(8);
            let mut numbers: Vec<i64> = numbers
                .map(|bytes| i64::from_le_bytes(bytes.try_into().expect("eight bytes")))
                .collect();
            edit(&mut numbers);
            let columns = dense.ty.dims.get(1).copied();
            let ty = &mut halite_stablehlo::Dense::from_integers(numbers);
            if let Some(columns) = columns {
                ty.ty.dims = vec![ty.ty.dims[0] / columns.max(1), columns];
            }
            *dense = ty.clone();
        }
        _ => {}
    }
}

fn set<T>(items: &mut [T], place: &Index, item: T) {
    if !items.is_empty() {
        items[place.index(items.len())] = item;
    }
}

fn remove<T>(items: &mut Vec<T>, place: &Index) {
    if !items.is_empty() {
        items.remove(place.index(items.len()));
    }
}

fn remove_value(values: &mut ValueIds, place: &Index) {
    if !values.is_empty() {
        values.remove(place.index(values.len()));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases.max(4000)))]

    #[test]
    fn mutations_verify_or_are_errors(
        program in any::<Index>(),
        mutations in prop::collection::vec(mutation(), 1..4),
    ) {
        static PROGRAMS: LazyLock<Vec<Module>> = LazyLock::new(valid::all);
        let mut module = program.get(&PROGRAMS).clone();
        for mutation in &mutations {
            mutate(&mut module, mutation);
        }
        for error in [module.verify().err(), module.interface().err()].into_iter().flatten() {
            prop_assert_eq!(error.op(), "program");
            prop_assert!(!error.message().is_empty());
        }
    }
}
