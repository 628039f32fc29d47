//! Enums whose variants are words of the command line and of configuration files.

/// Makes an enum of names, with `FromStr` and `Display`. A word that is none of them is an error
/// that lists all.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident, $what:literal { $($(#[$of:meta])* $variant:ident = $text:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Eq, PartialEq)]
        pub enum $name {
            $($(#[$of])* $variant,)*
        }

        impl ::std::str::FromStr for $name {
            type Err = ::halite_core::Error;

            fn from_str(text: &str) -> ::halite_core::Result<Self> {
                match text {
                    $($text => Ok($name::$variant),)*
                    _ => {
                        let known = [$($text),*].join(", ");
                        let message = format!(
                            concat!("unknown ", $what, " `{}`; expected {}"),
                            text, known
                        );
                        Err(::halite_core::Error::invalid($what, message))
                    }
                }
            }
        }

        impl ::std::fmt::Display for $name {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.pad(match self {
                    $($name::$variant => $text,)*
                })
            }
        }
    };
}

pub(crate) use words;
