//! The forms every type of the API is declared in: once, with the minor version a field or slot
//! first appeared in, so that the layout test can walk them.

/// Structs of the API. The kind says what the struct begins with: `extensible` is `struct_size` and
/// `extension_start`, `sized` is `struct_size`, `plain` is neither. `[since N]` marks a struct or a
/// field that came with minor version `N`; without it, it is of 0.81 or older.
macro_rules! c_structs {
    ($(
        $(#[$meta:meta])*
        $kind:ident $name:ident $([since $since:literal])? {
            $( $(#[$field_meta:meta])* $field:ident : $ty:ty $([since $field_since:literal])? ),* $(,)?
        }
    )*) => {
        $(
            $crate::macros::c_struct! {
                $kind
                ($(#[$meta])*) $name ($($since)?)
                $( ($(#[$field_meta])*) $field ($ty) ($($field_since)?) )*
            }
        )*

        /// The layouts of this file's structs.
        pub(crate) const LAYOUTS: &[$crate::Layout] = &[$(<$name as $crate::CStruct>::LAYOUT),*];
    };
}

macro_rules! c_struct {
    (extensible ($($meta:tt)*) $name:ident $since:tt $($fields:tt)*) => {
        $crate::macros::c_struct! {
            @declare ($($meta)*) $name $since
            (/** The size the caller knows: [`CStruct::STRUCT_SIZE`](crate::CStruct::STRUCT_SIZE). */) struct_size (usize) ()
            (/** Extensions of the caller; null for none. */) extension_start (*mut crate::base::PJRT_Extension_Base) ()
            $($fields)*
        }
        $crate::macros::c_struct!(@sized $name);
    };
    (sized ($($meta:tt)*) $name:ident $since:tt $($fields:tt)*) => {
        $crate::macros::c_struct! {
            @declare ($($meta)*) $name $since
            (/** The size the caller knows: [`CStruct::STRUCT_SIZE`](crate::CStruct::STRUCT_SIZE). */) struct_size (usize) ()
            $($fields)*
        }
        $crate::macros::c_struct!(@sized $name);
    };
    (plain ($($meta:tt)*) $name:ident $since:tt $($fields:tt)*) => {
        $crate::macros::c_struct! { @declare ($($meta)*) $name $since $($fields)* }
        impl $name {
            /// All fields zero or null.
            pub const fn new() -> Self {
                // SAFETY: every field is an integer, a bool, a raw pointer, an optional function or
                // a struct or union of these, for all of which zero bytes are a value.
                unsafe { std::mem::zeroed() }
            }
        }
    };
    (@sized $name:ident) => {
        impl $name {
            /// All fields zero or null but `struct_size`.
            pub const fn new() -> Self {
                // SAFETY: every field is an integer, a bool, a raw pointer, an optional function or
                // a struct or union of these, for all of which zero bytes are a value.
                let mut it: Self = unsafe { std::mem::zeroed() };
                it.struct_size = <Self as $crate::CStruct>::STRUCT_SIZE;
                it
            }
        }
    };
    (@declare ($($meta:tt)*) $name:ident ($($since:literal)?)
        $( ($($field_meta:tt)*) $field:ident ($ty:ty) ($($field_since:literal)?) )*
    ) => {
        $($meta)*
        #[repr(C)]
        #[derive(Clone, Copy)]
        pub struct $name {
            $( $($field_meta)* #[allow(missing_docs)] pub $field: $ty, )*
        }

        // SAFETY: `repr(C)`, and the offsets and sizes are the compiler's.
        unsafe impl $crate::CStruct for $name {
            const LAYOUT: $crate::Layout = $crate::Layout {
                name: stringify!($name),
                since: 0 $(+ $since)?,
                size: size_of::<$name>(),
                align: align_of::<$name>(),
                fields: &[$( $crate::Field {
                    name: stringify!($field),
                    offset: std::mem::offset_of!($name, $field),
                    size: size_of::<$ty>(),
                    since: 0 $(+ $field_since)?,
                } ),*],
            };
        }

        impl Default for $name {
            fn default() -> Self {
                Self::new()
            }
        }

        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                // Pointers and unions of a C struct say nothing; its name does.
                f.write_str(stringify!($name))
            }
        }
    };
}

/// C enums as integers with named values, because a plugin may answer with a value newer than ours.
macro_rules! c_enum {
    ($(#[$meta:meta])* $name:ident {
        $( $(#[$value_meta:meta])* $value:ident = $number:literal $([since $since:literal])? ),* $(,)?
    }) => {
        $(#[$meta])*
        #[repr(transparent)]
        #[derive(Clone, Copy, Eq, Hash, Ord, PartialEq, PartialOrd)]
        pub struct $name(pub u32);

        impl $name {
            $( $(#[$value_meta])* #[allow(missing_docs)] pub const $value: Self = Self($number); )*
            /// The values and the minor version each came with; 0 is 0.81 or older.
            pub const VALUES: &'static [(&'static str, u32, u32)] =
                &[$( (stringify!($value), $number, 0 $(+ $since)?) ),*];
        }

        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                match Self::VALUES.iter().find(|(_, number, _)| *number == self.0) {
                    Some((name, ..)) => f.write_str(name),
                    None => write!(f, "{}({})", stringify!($name), self.0),
                }
            }
        }
    };
}

/// Types that are only ever behind a pointer.
macro_rules! opaque {
    ($(#[$meta:meta])* $name:ident) => {
        $(#[$meta])*
        #[repr(C)]
        pub struct $name {
            _private: [u8; 0],
            // The plugin decides what may move and be shared, not the compiler.
            _marker: std::marker::PhantomData<(*mut u8, std::marker::PhantomPinned)>,
        }

        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(stringify!($name))
            }
        }
    };
}

pub(crate) use {c_enum, c_struct, c_structs, opaque};
