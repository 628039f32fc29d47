//! Which element types a program computes and keeps its values in: data, which a graph pass
//! applies.

use std::{fmt, str::FromStr};

use crate::{DType, Error, Result};

/// Which element types a program written in `f32` (and `f64`) computes in. What is of another type
/// stays as it is.
///
/// | name | parameters | products | between them | sums, norms, exponentials, update | `f64` |
/// |---|---|---|---|---|---|
/// | `f32` | as written | as written | as written | as written | stays |
/// | `bf16-mixed` | `f32` | `bf16`, summed in `f32` | `bf16` | `f32` | stays |
/// | `f16-mixed` | `f32` | `f16`, summed in `f32`, the loss scaled | `f16` | `f32` | stays |
/// | `bf16` | `bf16` | `bf16` | `bf16` | `f32` | stays |
/// | `use-bf16` | `bf16` | `bf16` | `bf16` | `f32` | becomes `bf16` |
/// | `downcast-bf16` | `bf16` | `bf16` | `bf16` | `f32` | becomes `f32` |
///
/// Under every policy, arrays report the type they were declared with, and host data has it: what
/// is kept in another is converted on the way in and out. Running means, an optimizer's slots,
/// losses, metrics, counters and random keys are kept as declared.
///
/// The last two are what PyTorch/XLA did with `XLA_USE_BF16=1` and `XLA_DOWNCAST_BF16=1`. These
/// variables are not read here: a program does not change because of its environment.
///
/// ```
/// use halite_core::{DType, DTypePolicy};
///
/// let policy: DTypePolicy = "bf16-mixed".parse()?;
/// assert_eq!(policy, DTypePolicy::BF16_MIXED);
/// assert_eq!((policy.params, policy.compute), (DType::F32, DType::Bf16));
/// assert_eq!(DTypePolicy::auto("tpu", "TPU v5 lite").to_string(), "bf16-mixed");
/// # Ok::<(), halite_core::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct DTypePolicy {
    /// Trained parameters of `f32`, as they lie on devices between programs.
    pub params: DType,
    /// Operands of dot products and convolutions, and what is computed elementwise between two of
    /// them.
    pub compute: DType,
    /// What products are summed in; sums, norms, softmax, exponentials, losses, the optimizer's
    /// update.
    pub reduce: DType,
    /// Results of products where they are needed exactly: logits, attention scores, gradients of
    /// weights. `f32` takes the sums as they are, a narrower type rounds them.
    pub output: DType,
    /// What `f64` becomes: itself, `f32`, or the type that `f32` becomes.
    pub double: DType,
    /// For gradients that would be too small for `compute`.
    pub loss_scale: Option<LossScale>,
}

/// A factor on the loss, and so on all gradients, which is taken out before the update
/// (Micikevicius et al. 2018). It halves when a gradient is not finite, and that step changes no
/// parameter; it doubles after some finite ones.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct LossScale {
    /// The first factor: two to this power. 15.
    pub first: u8,
    /// Finite steps after which the factor doubles: 2000.
    pub growth_interval: u32,
}

/// Where the narrow type of a policy pays on a device.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Narrowing {
    /// Values between products are narrow. If not, the operands of products alone are.
    pub between: bool,
    /// Products of fewer multiplications than this stay wide.
    pub least_work: u64,
}

impl Narrowing {
    /// Wherever the policy says so.
    pub const EVERYWHERE: Self = Narrowing {
        between: true,
        least_work: 0,
    };

    /// On devices of this [`Platform::name`](crate::Platform).
    pub fn on(platform: &str) -> Self {
        match platform {
            "cpu" => Narrowing {
                between: false,
                least_work: 0,
            },
            _ => Self::EVERYWHERE,
        }
    }
}

impl DTypePolicy {
    /// Everything as it is written.
    pub const F32: Self = DTypePolicy {
        params: DType::F32,
        compute: DType::F32,
        reduce: DType::F32,
        output: DType::F32,
        double: DType::F64,
        loss_scale: None,
    };
    /// Products in `bf16`; parameters, sums and the update in `f32`.
    pub const BF16_MIXED: Self = DTypePolicy {
        compute: DType::Bf16,
        ..Self::F32
    };
    /// Products in `f16`, with a scaled loss; parameters, sums and the update in `f32`.
    pub const F16_MIXED: Self = DTypePolicy {
        compute: DType::F16,
        loss_scale: Some(LossScale {
            first: 15,
            growth_interval: 2000,
        }),
        ..Self::F32
    };
    /// Parameters, products and what is between in `bf16`. Updates smaller than 1/256 of a
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

    /// The policies that have a name, by name.
    pub const NAMED: [(&str, Self); 6] = [
        ("f32", Self::F32),
        ("bf16-mixed", Self::BF16_MIXED),
        ("f16-mixed", Self::F16_MIXED),
        ("bf16", Self::BF16),
        ("use-bf16", Self::USE_BF16),
        ("downcast-bf16", Self::DOWNCAST_BF16),
    ];

    /// What to use where nobody chose: `bf16-mixed` on TPUs and on GPUs that have units for it
    /// (Ampere and later), else `f32`. `platform` is [`Platform::name`](crate::Platform), `device`
    /// is [`Device::kind`](crate::Device::kind).
    ///
    /// The CPU stays at `f32`, so that what is compared with other frameworks there is compared in
    /// equal numbers.
    pub fn auto(platform: &str, device: &str) -> Self {
        // NVIDIA's devices without bf16, by the names their driver gives them.
        const BEFORE_AMPERE: [&str; 12] = [
            "Tesla", "V100", "T4", "P100", "P40", "P4", "GTX", "TITAN", "RTX 206", "RTX 207",
            "RTX 208", "Quadro",
        ];
        match platform {
            "tpu" => Self::BF16_MIXED,
            "cuda" if !BEFORE_AMPERE.iter().any(|old| device.contains(old)) => Self::BF16_MIXED,
            _ => Self::F32,
        }
    }

    /// What devices hold of trained parameters that are declared as this.
    pub fn stored(&self, declared: DType) -> DType {
        match declared {
            DType::F32 => self.params,
            DType::F64 if self.double == DType::F32 => DType::F32,
            DType::F64 if self.double != DType::F64 => self.params,
            other => other,
        }
    }

    /// Whether a program is the same under it as without it.
    pub fn is_identity(&self) -> bool {
        DTypePolicy {
            loss_scale: None,
            ..*self
        } == Self::F32
    }

    /// That the fields fit together.
    ///
    /// # Errors
    /// If one is no float, or what is to be exact is narrower than what is not, naming the field
    /// and both types.
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
                    "`{name}` is f64; values of f32 become nothing wider"
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
                        "there is no policy `{text}`; the names are {}",
                        names.join(", ")
                    ),
                ))
            }
        }
    }
}

impl fmt::Display for DTypePolicy {
    /// Its name; its fields if it has none.
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
            loss_scale,
        } = self;
        write!(
            f,
            "params {params}, compute {compute}, reduce {reduce}, output {output}, f64 as {double}"
        )?;
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
    fn every_named_policy_fits_together_and_comes_back_from_its_name() {
        for (name, policy) in DTypePolicy::NAMED {
            policy.check().unwrap();
            assert_eq!(policy.to_string(), name);
            assert_eq!(name.parse::<DTypePolicy>().unwrap(), policy);
        }
        let error = "fp8".parse::<DTypePolicy>().unwrap_err().to_string();
        let names = "f32, bf16-mixed, f16-mixed, bf16, use-bf16, downcast-bf16";
        assert_eq!(
            error,
            format!("precision: there is no policy `fp8`; the names are {names}")
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
    fn the_default_depends_on_the_device() {
        for (platform, device, name) in [
            ("tpu", "TPU v5 lite", "bf16-mixed"),
            ("cuda", "NVIDIA H100 80GB HBM3", "bf16-mixed"),
            ("cuda", "NVIDIA A100-SXM4-40GB", "bf16-mixed"),
            ("cuda", "NVIDIA GeForce RTX 4090", "bf16-mixed"),
            ("cuda", "NVIDIA RTX 2000 Ada Generation", "bf16-mixed"),
            ("cuda", "NVIDIA GeForce RTX 2050", "bf16-mixed"),
            ("cuda", "NVIDIA GeForce RTX 2060", "f32"),
            ("cuda", "NVIDIA GeForce RTX 2080 Ti", "f32"),
            ("cuda", "Tesla V100-SXM2-16GB", "f32"),
            ("cpu", "cpu", "f32"),
            ("null", "null", "f32"),
        ] {
            assert_eq!(
                DTypePolicy::auto(platform, device).to_string(),
                name,
                "{platform} {device}"
            );
        }
    }

    #[test]
    fn fields_that_do_not_fit_are_named() {
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
