//! Mixed-precision policies: the dtypes that programs compute in and devices store. They are data,
//! which a graph pass applies.

use std::{fmt, str::FromStr};

use crate::{DType, Error, Result};

/// The dtypes that a program written in `f32` (and `f64`) computes in. Other types are unchanged.
///
/// | name | parameters | contractions | between them | sums, norms, exponentials, update | `f64` |
/// |---|---|---|---|---|---|
/// | `f32` | as written | as written | as written | as written | stays |
/// | `tf32` | as written | as the device multiplies `f32` fastest | as written | as written | stays |
/// | `bf16-mixed` | `f32` | `bf16`, summed in `f32` | `bf16` | `f32` | stays |
/// | `f16-mixed` | `f32` | `f16`, summed in `f32`, with loss scaling | `f16` | `f32` | stays |
/// | `bf16` | `bf16` | `bf16` | `bf16` | `f32` | stays |
/// | `use-bf16` | `bf16` | `bf16` | `bf16` | `f32` | becomes `bf16` |
/// | `downcast-bf16` | `bf16` | `bf16` | `bf16` | `f32` | becomes `f32` |
///
/// Under `tf32`, the device may round the operands of a contraction of `f32`: to TF32 (11
/// significant bits) on an NVIDIA GPU, to `bf16` on a TPU. This is what JAX does by default, and
/// PyTorch after `torch.set_float32_matmul_precision("high")`. All other policies ask for full
/// precision.
///
/// Under every policy, arrays report their declared type and host data has it: arrays that devices
/// store in another dtype are converted on the way in and out. Running means, optimizer slots,
/// losses, metrics, counters and random keys are stored as declared.
///
/// The last two are what PyTorch/XLA did with `XLA_USE_BF16=1` and `XLA_DOWNCAST_BF16=1`. These
/// variables are not read here: the environment does not change a program.
///
/// ```
/// use halite_core::{DType, DTypePolicy};
///
/// let policy: DTypePolicy = "bf16-mixed".parse()?;
/// assert_eq!(policy, DTypePolicy::BF16_MIXED);
/// assert_eq!((policy.params, policy.compute), (DType::F32, DType::Bf16));
/// # Ok::<(), halite_core::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct DTypePolicy {
    /// Storage of trained parameters of `f32` on devices.
    pub params: DType,
    /// Compute dtype: operands of dot products and convolutions, and elementwise operations between
    /// two of them.
    pub compute: DType,
    /// Accumulation of contractions; sums, norms, softmax, exponentials, losses and the optimizer's
    /// update.
    pub reduce: DType,
    /// Results of contractions that must stay in full precision: logits, attention scores,
    /// gradients of weights. `f32` takes the sums as they are, a narrower type rounds them.
    pub output: DType,
    /// The dtype for `f64`: itself, `f32`, or `compute`.
    pub double: DType,
    /// Contractions of `f32` may round their operands, where the device is faster so.
    pub fast_products: bool,
    /// Loss scaling, for gradients that would underflow in `compute`.
    pub loss_scale: Option<LossScale>,
}

/// Dynamic loss scaling (Micikevicius et al. 2018): a factor on the loss, and so on all gradients,
/// which is divided out before the update. It halves when a gradient is not finite, and that step
/// changes no parameter; it doubles after `growth_interval` finite steps.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct LossScale {
    /// Base-2 logarithm of the initial factor: 15.
    pub first: u8,
    /// Number of finite steps after which the factor doubles: 2000.
    pub growth_interval: u32,
}

/// Values for which casting to the compute dtype pays on a device.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Narrowing {
    /// All that the policy allows.
    Everywhere,
    /// Operands of contractions.
    Contractions,
}

impl DTypePolicy {
    /// All types as written.
    pub const F32: Self = DTypePolicy {
        params: DType::F32,
        compute: DType::F32,
        reduce: DType::F32,
        output: DType::F32,
        double: DType::F64,
        fast_products: false,
        loss_scale: None,
    };
    /// All types as written, and contractions of `f32` as fast as the device has them.
    pub const TF32: Self = DTypePolicy {
        fast_products: true,
        ..Self::F32
    };
    /// Contractions in `bf16`; parameters, sums and the update in `f32`.
    pub const BF16_MIXED: Self = DTypePolicy {
        compute: DType::Bf16,
        ..Self::F32
    };
    /// Contractions in `f16` with loss scaling; parameters, sums and the update in `f32`.
    pub const F16_MIXED: Self = DTypePolicy {
        compute: DType::F16,
        loss_scale: Some(LossScale {
            first: 15,
            growth_interval: 2000,
        }),
        ..Self::F32
    };
    /// Parameters, contractions and values between them in `bf16`. Updates smaller than 1/256 of a
    /// parameter are lost.
    pub const BF16: Self = DTypePolicy {
        params: DType::Bf16,
        output: DType::Bf16,
        ..Self::BF16_MIXED
    };
    /// As [`BF16`](Self::BF16), and `f64` becomes `bf16` too: `XLA_USE_BF16=1` of PyTorch/XLA.
    pub const USE_BF16: Self = DTypePolicy {
        double: DType::Bf16,
        ..Self::BF16
    };
    /// As [`BF16`](Self::BF16), and `f64` becomes `f32`: `XLA_DOWNCAST_BF16=1` of PyTorch/XLA.
    pub const DOWNCAST_BF16: Self = DTypePolicy {
        double: DType::F32,
        ..Self::BF16
    };

    /// The named policies.
    pub const NAMED: [(&str, Self); 7] = [
        ("f32", Self::F32),
        ("tf32", Self::TF32),
        ("bf16-mixed", Self::BF16_MIXED),
        ("f16-mixed", Self::F16_MIXED),
        ("bf16", Self::BF16),
        ("use-bf16", Self::USE_BF16),
        ("downcast-bf16", Self::DOWNCAST_BF16),
    ];

    /// The dtype in which devices store trained parameters declared as `declared`.
    pub fn stored(&self, declared: DType) -> DType {
        match declared {
            DType::F32 => self.params,
            DType::F64 if self.double == DType::F32 => DType::F32,
            DType::F64 if self.double != DType::F64 => self.params,
            other => other,
        }
    }

    /// Returns whether the types of programs are unchanged under the policy.
    pub fn is_identity(&self) -> bool {
        DTypePolicy {
            fast_products: false,
            loss_scale: None,
            ..*self
        } == Self::F32
    }

    /// Checks that the fields are consistent.
    ///
    /// # Errors
    /// If a field is not a float, or contradicts another; the error names both types.
    pub fn check(&self) -> Result<()> {
        let fields = [
            ("params", self.params),
            ("compute", self.compute),
            ("reduce", self.reduce),
            ("output", self.output),
            ("double", self.double),
        ];
        let refuse = |message: String| Err(Error::invalid("precision", message));
        if let Some((name, dtype)) = fields.into_iter().find(|(_, dtype)| !dtype.is_float()) {
            return refuse(format!("`{name}` is {dtype}; it must be a float"));
        }
        if self.reduce != DType::F32 {
            return refuse(format!(
                "`reduce` is {}; sums, norms and losses are taken in f32",
                self.reduce
            ));
        }
        for (name, dtype) in &fields[..4] {
            if *dtype == DType::F64 {
                return refuse(format!(
                    "`{name}` is f64; values of f32 cannot become wider"
                ));
            }
        }
        if ![DType::F64, DType::F32, self.compute].contains(&self.double) {
            return refuse(format!(
                "`double` is {}; it must be f64, f32, or `compute`, which is {}",
                self.double, self.compute
            ));
        }
        if ![DType::F32, self.compute].contains(&self.output) {
            return refuse(format!(
                "`output` is {}; it must be f32, or `compute`, which is {}",
                self.output, self.compute
            ));
        }
        Ok(())
    }
}

impl Default for DTypePolicy {
    fn default() -> Self {
        Self::F32
    }
}

impl FromStr for DTypePolicy {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match Self::NAMED.into_iter().find(|(name, _)| *name == text) {
            Some((_, policy)) => Ok(policy),
            None => {
                let names: Vec<&str> = Self::NAMED.iter().map(|(name, _)| *name).collect();
                Err(Error::invalid(
                    "precision",
                    format!(
                        "unknown policy `{text}`; expected one of {}",
                        names.join(", ")
                    ),
                ))
            }
        }
    }
}

impl fmt::Display for DTypePolicy {
    /// Writes the name of the policy, or its fields if it has none.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((name, _)) = Self::NAMED.iter().find(|(_, policy)| policy == self) {
            return f.pad(name);
        }
        let DTypePolicy {
            params,
            compute,
            reduce,
            output,
            double,
            fast_products,
            loss_scale,
        } = self;
        write!(
            f,
            "params {params}, compute {compute}, reduce {reduce}, output {output}, f64 as {double}"
        )?;
        if *fast_products {
            f.write_str(", fast products")?;
        }
        match loss_scale {
            Some(LossScale {
                first,
                growth_interval,
            }) => {
                write!(
                    f,
                    ", loss times 2^{first}, growing every {growth_interval} steps"
                )
            }
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn named_policies_round_trip() {
        for (name, policy) in DTypePolicy::NAMED {
            policy.check().unwrap();
            assert_eq!(policy.to_string(), name);
            assert_eq!(name.parse::<DTypePolicy>().unwrap(), policy);
        }
        let error = "fp8".parse::<DTypePolicy>().unwrap_err().to_string();
        let names = "f32, tf32, bf16-mixed, f16-mixed, bf16, use-bf16, downcast-bf16";
        assert_eq!(
            error,
            format!("precision: unknown policy `fp8`; expected one of {names}")
        );
        let own = DTypePolicy {
            loss_scale: None,
            ..DTypePolicy::F16_MIXED
        };
        assert_eq!(
            own.to_string(),
            "params f32, compute f16, reduce f32, output f32, f64 as f64"
        );
    }

    #[test]
    fn fast_products_leave_types_as_they_are() {
        assert!(DTypePolicy::TF32.is_identity());
        let own = DTypePolicy {
            fast_products: true,
            ..DTypePolicy::BF16
        };
        let text = own.to_string();
        assert!(text.ends_with("f64 as f64, fast products"), "{text}");
    }

    #[test]
    fn check_names_inconsistent_fields() {
        let check = |policy: DTypePolicy| policy.check().unwrap_err().to_string();
        let mixed = DTypePolicy::BF16_MIXED;
        let error = check(DTypePolicy {
            reduce: DType::Bf16,
            ..mixed
        });
        assert_eq!(
            error,
            "precision: `reduce` is bf16; sums, norms and losses are taken in f32"
        );
        assert!(
            check(DTypePolicy {
                compute: DType::S8,
                ..mixed
            })
            .contains("`compute` is s8; it must be a float")
        );
        assert!(
            check(DTypePolicy {
                params: DType::F64,
                ..mixed
            })
            .contains("`params` is f64")
        );
        assert!(
            check(DTypePolicy {
                output: DType::F16,
                ..mixed
            })
            .contains("`output` is f16")
        );
        assert!(
            check(DTypePolicy {
                double: DType::F16,
                ..mixed
            })
            .contains("`double` is f16")
        );
    }
}
