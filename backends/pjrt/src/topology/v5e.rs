//! The limits of a TPU v5e, beyond which its compiler ends the process.

use crate::{DeviceDescription, OptionValue};

/// The longest axis of a v5e. The compiler takes longer ones and ends the process.
const LONGEST_OF_V5E: i64 = 16;
pub(super) const BEYOND_V5E: &str = "a v5e has at most 16 chips along each axis, on more the compiler ends \
 the process; take v5e:16x16 or less";

/// Refuses the names that a plugin takes and cannot compile for.
pub(super) fn check_name(name: &str) -> Result<(), String> {
    let Some((kind, axes)) = name.split_once(':') else {
        return Ok(());
    };
    let beyond = |axis: &str| {
        let digits = axis.trim();
        // A number that is too long to parse is too large as well. The
        // plugin itself refuses anything that is not a number.
        !digits.is_empty()
            && digits.bytes().all(|byte| byte.is_ascii_digit())
            && digits
                .parse()
                .map_or(true, |size: i64| size > LONGEST_OF_V5E)
    };
    if is_v5e(kind) && axes.split(['x', 'X', ',']).any(beyond) {
        Err(BEYOND_V5E.to_owned())
    } else {
        Ok(())
    }
}

/// Returns whether `kind` names a v5e, as in the name of a topology or the kind of a device.
fn is_v5e(kind: &str) -> bool {
    let kind: String = kind
        .to_ascii_lowercase()
        .chars()
        .filter(char::is_ascii_alphanumeric)
        .collect();
    ["v5e", "v5lite", "v5litepod"].contains(&kind.strip_prefix("tpu").unwrap_or(&kind))
}

/// Returns whether the coordinates of a device exceed those of a v5e, in a topology that was not
/// created by name.
pub(super) fn is_beyond_v5e(device: &DeviceDescription) -> bool {
    let coords = device
        .attributes
        .iter()
        .find(|(name, _)| name == "coords")
        .map(|(_, value)| value);
    is_v5e(&device.kind)
        && matches!(coords, Some(OptionValue::Ints(at)) if at.iter().any(|&at| at >= LONGEST_OF_V5E))
}

#[cfg(test)]
mod tests {
    use halite_core::DeviceId;

    use super::*;

    #[test]
    fn v5e_axes_over_16_are_refused() {
        for name in [
            "v5e:32x32",
            "v5e:17x1",
            "v5e:1x17x1",
            "V5E:4X32",
            "TPU v5 lite:32x2",
            "v5litepod:2x99999999999999999999",
        ] {
            assert!(
                check_name(name).unwrap_err().contains("at most 16 chips"),
                "{name}"
            );
        }
        for name in [
            "v5e:16x16",
            "v5e:2x2x1",
            "v5p:32x32x32",
            "v6e:16x16",
            "v5e",
            "v5e:",
            "v5e:axb",
            "cpu",
            "",
        ] {
            assert_eq!(check_name(name), Ok(()), "{name}");
        }
    }

    #[test]
    fn v5e_devices_beyond_16_are_found_by_coordinates() {
        let device = |kind: &str, coords: OptionValue| DeviceDescription {
            id: DeviceId(0),
            process: 0,
            kind: kind.to_owned(),
            debug: String::new(),
            attributes: vec![("coords".to_owned(), coords)],
        };
        assert!(is_beyond_v5e(&device(
            "TPU v5 lite",
            OptionValue::Ints(vec![0, 16, 0])
        )));
        assert!(!is_beyond_v5e(&device(
            "TPU v5 lite",
            OptionValue::Ints(vec![15, 15, 0])
        )));
        assert!(!is_beyond_v5e(&device(
            "TPU v5",
            OptionValue::Ints(vec![0, 16, 0])
        )));
        assert!(!is_beyond_v5e(&device(
            "cpu",
            OptionValue::Str("16".to_owned())
        )));
    }
}
