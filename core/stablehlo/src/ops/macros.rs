//! What the tables of operations, structures and enumerations expand to.

/// The versions of an operation: those after `in`, else the one since the oldest release.
macro_rules! versions {
    () => {
        STABLE
    };
    ($versions:expr) => {
        const { $versions }
    };
}

/// Makes [`OpKind`](crate::OpKind) of the rows of [`ops!`](super::ops). A row is
///
/// ```text
/// /// Documentation.
/// Variant { field: Type = kind("attribute"), .. } = "name" [regions] in VERSIONS => rule;
/// ```
///
/// - A variant has fields in braces, one field in parentheses, or none. The name of a field in
///   parentheses is that in `rule`.
/// - Fields are in the order in which the text has their attributes.
/// - After the type of a field are its attributes, a [`Field`](super::fields::Field) of one of the
///   [`kinds`](super::kinds). `structure()` is one of [`attributes!`].
/// - `[regions]` is there if the operation has regions, whose number the rule checks.
/// - `in VERSIONS` is there if VHLO has not had the operation unchanged since the oldest release.
/// - `rule` is an expression of references to the fields and of the operation with its types,
///   which `verify/infer.rs` has.
macro_rules! define {
    ($op:ident; $(
        $(#[$doc:meta])*
        $variant:ident
        $(($value:ident: $value_ty:ty = $value_as:expr))?
        $({ $($(#[$field_doc:meta])* $field:ident: $ty:ty = $as:expr),* $(,)? })?
        = $name:literal $([$regions:ident])? $(in $versions:expr)? => $rule:expr;
    )*) => {
        /// An operation without its operands, results and regions.
        #[derive(Clone, Debug, PartialEq)]
        #[allow(
            missing_docs,
            reason = "fields that are not documented are attributes of the specification"
        )]
        pub enum OpKind {
            /// Elementwise on one operand.
            Unary(UnaryOp),
            /// Elementwise on two operands of one type. `complex` has parts as operands.
            Binary(BinaryOp),
            $($(#[$doc])* $variant $(($value_ty))? $({ $($(#[$field_doc])* $field: $ty),* })?,)*
        }

        impl OpKind {
            /// The name in the row.
            fn row_name(&self) -> &'static str {
                match self {
                    OpKind::Unary(op) => op.name(),
                    OpKind::Binary(op) => op.name(),
                    $(OpKind::$variant { .. } => $name,)*
                }
            }

            /// Visits the attributes of this operation in the order in which text has them.
            pub(crate) fn visit<'a>(&'a self, visit: &mut dyn FnMut(&Named, Value<'a>)) {
                match self {
                    OpKind::Unary(_) | OpKind::Binary(_) => {}
                    $(OpKind::$variant { .. } => {
                        $(if let OpKind::$variant(value) = self {
                            Fields::visit(&$value_as, value, visit);
                        })?
                        $($(if let OpKind::$variant { $field: value, .. } = self {
                            Fields::visit(&$as, value, visit);
                        })*)?
                    })*
                }
            }

            /// The operation with this name, `None` if it is not one of StableHLO.
            pub(crate) fn take(name: &str, take: &mut Take<'_>) -> Result<Option<Self>> {
                Ok(Some(match name {
                    $($name => OpKind::$variant
                        $((Fields::take(&$value_as, take)?))?
                        $({ $($field: Fields::take(&$as, take)?),* })?,)*
                    _ => {
                        let unary = UnaryOp::from_name(name).filter(|op| !op.versions().is_empty());
                        let binary = || BinaryOp::from_name(name).map(OpKind::Binary);
                        return Ok(unary.map(OpKind::Unary).or_else(binary));
                    }
                }))
            }
        }

        /// The rows of all operations by name.
        static ROWS: LazyLock<BTreeMap<&str, Row>> = LazyLock::new(|| {
            let unary = UnaryOp::ALL.iter().map(|op| Row::new(op.name(), op.versions(), |_| {}));
            let binary = BinaryOp::ALL.iter().map(|op| Row::new(op.name(), op.versions(), |_| {}));
            let rows = [$(Row::new($name, versions!($($versions)?), |_attributes| {
                $(Fields::<$value_ty>::describe(&$value_as, _attributes);)?
                $($(Fields::<$ty>::describe(&$as, _attributes);)*)?
            })),*];
            unary.chain(binary).chain(rows).map(|row| (row.name, row)).collect()
        });
    };
}

/// Makes structures of attributes, whose fields are as in the rows of [`ops!`](super::ops).
macro_rules! attributes {
    ($($(#[$meta:meta])* pub struct $name:ident {
        $($(#[$doc:meta])* pub $field:ident: $ty:ty = $as:expr),* $(,)?
    })*) => {$(
        $(#[$meta])*
        pub struct $name { $($(#[$doc])* pub $field: $ty),* }

        fields! { Structure<$name>: $name { $($field: $ty = $as),* } }
    )*};
}

/// Implements [`Fields`](super::fields::Fields) of a structure, in the order in which its
/// attributes are written.
macro_rules! fields {
    ($fields:ty: $name:ident { $($field:ident: $ty:ty = $as:expr),* $(,)? }) => {
        impl Fields<$name> for $fields {
            fn take(&self, take: &mut Take<'_>) -> Result<$name> {
                Ok($name { $($field: Fields::take(&$as, take)?),* })
            }

            fn visit<'a>(&self, value: &'a $name, visit: &mut dyn FnMut(&Named, Value<'a>)) {
                $(Fields::visit(&$as, &value.$field, visit);)*
            }

            fn describe(&self, attributes: &mut Vec<Named>) {
                $(Fields::<$ty>::describe(&$as, attributes);)*
            }
        }
    };
}

/// Makes a type of names.
macro_rules! names {
    ($(#[$doc:meta])* $name:ident { $($variant:ident = $text:literal),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
        #[allow(missing_docs, reason = "the names are those of the specification")]
        pub enum $name { $($variant),* }

        impl $name {
            /// All cases.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// The name in StableHLO.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $text),* }
            }

            /// The case with this [`name`](Self::name).
            pub fn from_name(name: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|case| case.name() == name)
            }
        }
    };
}

/// Makes an enumeration: `Type(code in VHLO, "name in text") { Variant = "NAME", .. }`. With
/// `, after NONE`, a case that is no value has the number 0 in VHLO.
macro_rules! cases {
    ($(#[$doc:meta])* $name:ident($code:literal, $kind:literal $(, after $none:expr)?) {
        $($variant:ident = $text:literal),* $(,)?
    }) => {
        names! { $(#[$doc])* $name { $($variant = $text),* } }

        impl Case for $name {
            const ENUMERATION: Enumeration =
                Enumeration::new($code, $kind, &[$($text),*])$(.after($none))?;
            const ALL: &[Self] = $name::ALL;

            fn name(self) -> &'static str {
                self.name()
            }
        }
    };
}

/// Makes an enumeration of elementwise operations. A row is
/// `Variant: CLASSES = "name" in VERSIONS`, where `in VERSIONS` is as in the rows of
/// [`ops!`](super::ops).
macro_rules! elementwise {
    ($(#[$doc:meta])* $name:ident {
        $($variant:ident: $classes:ident = $text:literal $(in $versions:expr)?),* $(,)?
    }) => {
        names! { $(#[$doc])* $name { $($variant = $text),* } }

        impl $name {
            /// Classes of the elements of operands.
            pub(crate) fn classes(self) -> &'static [ElementClass] {
                match self { $(Self::$variant => $classes),* }
            }

            fn versions(self) -> Versions {
                match self { $(Self::$variant => versions!($($versions)?)),* }
            }
        }
    };
}

pub(super) use {attributes, cases, define, elementwise, fields, names, versions};
