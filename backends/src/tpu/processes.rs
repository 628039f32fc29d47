//! Several processes on a host of TPUs: the variables by which libtpu gives each one chip.
//! Processes that have a host each need none; libtpu reads the cloud's.
//!
//! They are derived as PyTorch/XLA does (`configure_topology`, torch_xla/_internal/tpu.py), and
//! never replace what is set: clouds set some of them for one process a host, which is an error.

use halite_core::{Error, Result};

/// Port of the first process of a host, as PyTorch/XLA's.
const FIRST_PORT: usize = 8476;

/// A host, or its share of a slice, as sizes along three axes.
type Bounds = [usize; 3];

/// The variables of process `rank` of `size` processes on a host with `chips` chips, from those
/// that are set.
///
/// # Errors
/// If the host has another number of chips than processes; if what is set is malformed, contradicts
/// itself, or is that of one process for the whole host.
pub(super) fn of_process(
    variable: &dyn Fn(&str) -> Option<String>,
    process: [usize; 2],
    chips: usize,
) -> Result<Vec<(&'static str, String)>> {
    let [rank, size] = process;
    if size == 1 {
        return Ok(Vec::new());
    }
    match variable("TPU_VISIBLE_CHIPS") {
        Some(text) if chips > 1 && text.split(',').count() == chips => {
            return Err(invalid(format!(
                "TPU_VISIBLE_CHIPS is `{text}`, all chips of this host, which {size} processes \
                 share; unset it, so that each process has a chip, or start one process for the \
                 host"
            )));
        }
        // The user has placed the processes.
        Some(_) => return Ok(Vec::new()),
        None if variable("TPU_PROCESS_BOUNDS").is_some() => return Ok(Vec::new()),
        None => {}
    }
    if size != chips {
        return Err(invalid(format!(
            "{size} processes share this host, which has {chips} chips; start one for each chip, or \
             one for the host"
        )));
    }
    let hosts = variable("TPU_WORKER_HOSTNAMES").unwrap_or("localhost".to_owned());
    let hosts: Vec<&str> = hosts.split(',').map(str::trim).collect();
    let worker = worker(variable, hosts.len())?;
    let of_hosts = match bounds(variable, "TPU_HOST_BOUNDS")? {
        Some(bounds) => bounds,
        None if hosts.len() == 1 => [1, 1, 1],
        None => {
            let count = hosts.len();
            return Err(invalid(format!(
                "TPU_WORKER_HOSTNAMES has {count} hosts; set TPU_HOST_BOUNDS to their arrangement, \
                 such as 2,2,1"
            )));
        }
    };
    let product: usize = of_hosts.iter().product();
    if product != hosts.len() || worker >= hosts.len() {
        return Err(invalid(format!(
            "TPU_HOST_BOUNDS {of_hosts:?} are {product} hosts, TPU_WORKER_HOSTNAMES has {}, and \
             this is worker {worker}",
            hosts.len()
        )));
    }
    let of_host = match bounds(variable, "TPU_CHIPS_PER_HOST_BOUNDS")? {
        Some(bounds) => bounds,
        None => match chips {
            4 => [2, 2, 1],
            8 => [2, 4, 1],
            chips => [chips, 1, 1],
        },
    };
    if of_host.iter().product::<usize>() != chips {
        return Err(invalid(format!(
            "TPU_CHIPS_PER_HOST_BOUNDS are {of_host:?}, and this host has {chips} chips"
        )));
    }
    let all: Vec<String> = (0..3)
        .map(|axis| (of_hosts[axis] * of_host[axis]).to_string())
        .collect();
    let addresses = hosts
        .iter()
        .flat_map(|host| (0..size).map(move |local| format!("{host}:{}", FIRST_PORT + local)));
    let derived = vec![
        ("TPU_VISIBLE_CHIPS", rank.to_string()),
        ("TPU_CHIPS_PER_PROCESS_BOUNDS", "1,1,1".to_owned()),
        ("TPU_PROCESS_BOUNDS", all.join(",")),
        (
            "TPU_PROCESS_ADDRESSES",
            addresses.collect::<Vec<_>>().join(","),
        ),
        ("TPU_PROCESS_PORT", (FIRST_PORT + rank).to_string()),
        ("CLOUD_TPU_TASK_ID", (worker * size + rank).to_string()),
    ];
    for (name, value) in &derived {
        if let Some(set) = variable(name).filter(|set| set.trim() != value) {
            return Err(invalid(format!(
                "{name} is `{set}`, and process {rank} of the {size} of this host needs `{value}`; \
                 unset it (TPU_WORKER_ID stays the number of the host), or start one process for \
                 the host"
            )));
        }
    }
    Ok(derived)
}

/// The number of this host among those of its slice.
fn worker(variable: &dyn Fn(&str) -> Option<String>, hosts: usize) -> Result<usize> {
    let known = ["TPU_WORKER_ID", "CLOUD_TPU_TASK_ID"];
    let found = known.iter().find_map(|name| Some((name, variable(name)?)));
    match found {
        Some((name, text)) => text
            .trim()
            .parse()
            .map_err(|_| invalid(format!("{name} is `{text}`; expected a number"))),
        None if hosts == 1 => Ok(0),
        None => Err(invalid(format!(
            "TPU_WORKER_HOSTNAMES has {hosts} hosts; set TPU_WORKER_ID to the number of this one"
        ))),
    }
}

/// The sizes in a variable: `2,2,1`.
fn bounds(variable: &dyn Fn(&str) -> Option<String>, name: &str) -> Result<Option<Bounds>> {
    let Some(text) = variable(name) else {
        return Ok(None);
    };
    let sizes: Option<Vec<usize>> = text
        .split(',')
        .map(|size| size.trim().parse().ok())
        .collect();
    let sizes = sizes.filter(|sizes| !sizes.contains(&0));
    let sizes: Option<Bounds> = sizes.and_then(|sizes| sizes.try_into().ok());
    match sizes {
        Some(sizes) => Ok(Some(sizes)),
        None => Err(invalid(format!(
            "{name} is `{text}`; expected three sizes, such as 2,2,1"
        ))),
    }
}

fn invalid(message: String) -> Error {
    Error::invalid("tpu", message)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One host of a slice.
    struct Slice {
        name: &'static str,
        /// `TPU_HOST_BOUNDS`, `TPU_CHIPS_PER_HOST_BOUNDS`.
        bounds: [&'static str; 2],
        chips: usize,
        hosts: usize,
    }

    /// Hosts and chips of slices: Cloud TPU's documentation ("TPU v4", "TPU v5e", "TPU v5p",
    /// "Configurations"), PyTorch/XLA's tests (test_tpu.py: v4-16 has process bounds 2,2,2 and
    /// v4-32 2,2,4 with a process for each chip).
    #[rustfmt::skip]
    const SLICES: [Slice; 9] = [
        Slice { name: "v4-8", bounds: ["1,1,1", "2,2,1"], chips: 4, hosts: 1 },
        Slice { name: "v4-16", bounds: ["1,1,2", "2,2,1"], chips: 4, hosts: 2 },
        Slice { name: "v4-32", bounds: ["1,1,4", "2,2,1"], chips: 4, hosts: 4 },
        Slice { name: "v5p-64", bounds: ["1,2,4", "2,2,1"], chips: 4, hosts: 8 },
        Slice { name: "v5litepod-4", bounds: ["1,1,1", "2,2,1"], chips: 4, hosts: 1 },
        Slice { name: "v5litepod-8", bounds: ["1,1,1", "2,4,1"], chips: 8, hosts: 1 },
        Slice { name: "v5litepod-16", bounds: ["2,2,1", "2,2,1"], chips: 4, hosts: 4 },
        Slice { name: "v5litepod-64", bounds: ["4,4,1", "2,2,1"], chips: 4, hosts: 16 },
        Slice { name: "v5litepod-256", bounds: ["8,8,1", "2,2,1"], chips: 4, hosts: 64 },
    ];

    const PROCESS_BOUNDS: [&str; 9] = [
        "2,2,1", "2,2,2", "2,2,4", "2,4,4", "2,2,1", "2,4,1", "4,4,1", "8,8,1", "16,16,1",
    ];

    fn derived(
        set: &[(&str, String)],
        place: [usize; 2],
        chips: usize,
    ) -> Result<Vec<(&'static str, String)>> {
        let variable = |name: &str| {
            let found = set.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| value.clone())
        };
        of_process(&variable, place, chips)
    }

    fn names(hosts: usize) -> String {
        let names: Vec<_> = (0..hosts).map(|host| format!("w-{host}")).collect();
        names.join(",")
    }

    #[test]
    fn each_process_of_a_slice_has_a_chip() {
        for (slice, process_bounds) in SLICES.iter().zip(PROCESS_BOUNDS) {
            let (worker, rank) = (slice.hosts - 1, slice.chips - 1);
            let set = [
                ("TPU_WORKER_HOSTNAMES", names(slice.hosts)),
                ("TPU_WORKER_ID", worker.to_string()),
                ("TPU_HOST_BOUNDS", slice.bounds[0].to_owned()),
                ("TPU_CHIPS_PER_HOST_BOUNDS", slice.bounds[1].to_owned()),
            ];
            let found = derived(&set, [rank, slice.chips], slice.chips).unwrap();
            let value = |name| &*found.iter().find(|(known, _)| *known == name).unwrap().1;
            assert_eq!(
                value("TPU_VISIBLE_CHIPS"),
                rank.to_string(),
                "{}",
                slice.name
            );
            assert_eq!(value("TPU_CHIPS_PER_PROCESS_BOUNDS"), "1,1,1");
            assert_eq!(
                value("TPU_PROCESS_BOUNDS"),
                process_bounds,
                "{}",
                slice.name
            );
            let last = slice.hosts * slice.chips - 1;
            assert_eq!(
                value("CLOUD_TPU_TASK_ID"),
                last.to_string(),
                "{}",
                slice.name
            );
            let port = 8475 + slice.chips;
            assert_eq!(value("TPU_PROCESS_PORT"), port.to_string());
            let addresses: Vec<_> = value("TPU_PROCESS_ADDRESSES").split(',').collect();
            assert_eq!(addresses.len(), slice.hosts * slice.chips);
            assert_eq!(
                addresses[last],
                format!("w-{worker}:{port}"),
                "{}",
                slice.name
            );
            // A process for each host needs nothing.
            assert_eq!(derived(&set, [0, 1], slice.chips).unwrap(), []);
        }
    }

    /// Each slice has addresses and numbers of its own; `MEGASCALE_*` connects them (facts of
    /// libtpu: TPU_WORKER_HOSTNAMES are those of the slice).
    #[test]
    fn two_slices_have_addresses_of_their_own() {
        let set = [
            ("TPU_WORKER_HOSTNAMES", names(2)),
            ("TPU_WORKER_ID", "1".to_owned()),
            ("TPU_HOST_BOUNDS", "1,1,2".to_owned()),
            ("MEGASCALE_NUM_SLICES", "2".to_owned()),
            ("MEGASCALE_SLICE_ID", "1".to_owned()),
            ("MEGASCALE_COORDINATOR_ADDRESS", "w-0:8080".to_owned()),
        ];
        let found = derived(&set, [0, 4], 4).unwrap();
        assert!(
            found.contains(&("CLOUD_TPU_TASK_ID", "4".to_owned())),
            "{found:?}"
        );
        assert!(found.contains(&("TPU_PROCESS_BOUNDS", "2,2,2".to_owned())));
        let addresses = found
            .iter()
            .find(|(name, _)| *name == "TPU_PROCESS_ADDRESSES");
        assert!(addresses.unwrap().1.starts_with("w-0:8476,w-0:8477,"));
    }

    #[test]
    fn contradictions_are_named() {
        let error = |set: &[(&str, String)], place, chips| {
            derived(set, place, chips).unwrap_err().to_string()
        };
        assert_eq!(
            error(&[], [0, 2], 4),
            "tpu: 2 processes share this host, which has 4 chips; start one for each chip, or one \
             for the host"
        );
        let two = [
            ("TPU_WORKER_HOSTNAMES", names(2)),
            ("TPU_WORKER_ID", "1".to_owned()),
        ];
        assert!(error(&two[..1], [0, 4], 4).contains("set TPU_WORKER_ID"));
        assert!(error(&two, [0, 4], 4).contains("set TPU_HOST_BOUNDS"));
        let bounds = ("TPU_HOST_BOUNDS", "2,2,1".to_owned());
        let four = [two[0].clone(), two[1].clone(), bounds];
        assert!(error(&four, [0, 4], 4).contains("are 4 hosts, TPU_WORKER_HOSTNAMES has 2"));
        let text = [("TPU_HOST_BOUNDS", "2x2".to_owned())];
        assert!(error(&text, [0, 4], 4).contains("`2x2`; expected three sizes"));
    }

    /// What a cloud sets for one process a host would be that of all processes of the host.
    #[test]
    fn values_of_one_process_for_the_host_are_an_error() {
        let slice = [
            ("TPU_WORKER_HOSTNAMES", names(2)),
            ("TPU_HOST_BOUNDS", "1,1,2".to_owned()),
        ];
        let error = |set: (&'static str, &str), place| {
            let set = [
                slice[0].clone(),
                slice[1].clone(),
                (set.0, set.1.to_owned()),
            ];
            derived(&set, place, 4).unwrap_err().to_string()
        };
        assert_eq!(
            error(("CLOUD_TPU_TASK_ID", "1"), [2, 4]),
            "tpu: CLOUD_TPU_TASK_ID is `1`, and process 2 of the 4 of this host needs `6`; unset \
             it (TPU_WORKER_ID stays the number of the host), or start one process for the host"
        );
        let all_chips = error(("TPU_VISIBLE_CHIPS", "0,1,2,3"), [0, 4]);
        assert!(all_chips.contains("all chips of this host, which 4 processes share"));
        for (name, value, needed) in [
            ("TPU_PROCESS_PORT", "8470", "`8478`"),
            ("TPU_PROCESS_ADDRESSES", "w-0:8470,w-1:8470", "`w-0:8476,"),
        ] {
            let set = [
                slice[0].clone(),
                slice[1].clone(),
                ("TPU_WORKER_ID", "1".to_owned()),
                (name, value.to_owned()),
            ];
            let error = derived(&set, [2, 4], 4).unwrap_err().to_string();
            assert!(error.contains(name) && error.contains(needed), "{error}");
        }
        // The number of the process is accepted beside that of its host.
        let set = [
            slice[0].clone(),
            slice[1].clone(),
            ("TPU_WORKER_ID", "1".to_owned()),
            ("CLOUD_TPU_TASK_ID", "6".to_owned()),
        ];
        derived(&set, [2, 4], 4).unwrap();
    }

    #[test]
    fn placement_of_the_user_stays() {
        let set = [("TPU_VISIBLE_CHIPS", "2".to_owned())];
        assert_eq!(derived(&set, [0, 4], 4).unwrap(), []);
    }
}
