//! Clients of several processes: how they find each other's devices, and exchange the shards of a
//! launch's inputs, both through a key-value store.
//!
//! Each process runs the whole program on the inputs of all, and keeps the results of its own
//! devices. That is slow, and real: it serves tests of what runs over several processes.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use halite_core::{Error, ErrorKind, HloSharding, KeyValueStore, Result};
use halite_stablehlo::RankedType;

use crate::{
    failure::cancelled,
    oracle::{Tensor, shard_type},
    ready::Ready,
};

/// The process of each partition of a program.
pub(crate) type Owners = Arc<[u32]>;

/// One of several processes whose devices a client has.
#[derive(Clone, Debug)]
pub struct Node {
    /// Index of this process, from 0.
    pub index: u32,
    /// Number of processes.
    pub count: u32,
    /// The store that they share, with no keys of an earlier client.
    pub store: Arc<dyn KeyValueStore>,
    /// Longest wait for another process in one launch.
    pub patience: Duration,
}

/// Longest wait for the devices of other processes.
const START: Duration = Duration::from_secs(300);

impl Node {
    /// Tells the number of devices of this process, and returns those of all processes, by index.
    /// Process 0 collects them, as XLA's clients do.
    ///
    /// # Errors
    /// If a process does not tell its devices in time; if the processes do not agree on their
    /// number.
    pub(crate) fn meet(&self, devices: u32) -> Result<Vec<u32>> {
        let local = |index: u32| format!("local_topology/embedded/{index}");
        const GLOBAL: &str = "global_topology/embedded";
        if self.index >= self.count {
            let (index, count) = (self.index, self.count);
            let message = format!("process {index} of {count}; expected an index below the number");
            return Err(Error::invalid("open", message));
        }
        self.store
            .put(&local(self.index), devices.to_string().as_bytes())?;
        if self.index == 0 {
            let all = (0..self.count).map(|index| self.store.get(&local(index), START));
            let all = all.collect::<Result<Vec<_>>>()?;
            self.store.put(GLOBAL, &all.join(&b' '))?;
        }
        let all = self.store.get(GLOBAL, START)?;
        let text = String::from_utf8_lossy(&all);
        let counts: Option<Vec<u32>> = text.split(' ').map(|count| count.parse().ok()).collect();
        let counts = counts.filter(|counts| counts.len() == self.count as usize);
        let counts = counts.filter(|counts| counts[self.index as usize] == devices);
        counts.ok_or_else(|| {
            let message = format!(
                "the devices by process are `{text}`, process {} of {} has {devices}: the processes \
                 do not agree on their number",
                self.index, self.count
            );
            Error::invalid("open", message)
        })
    }
}

/// The other processes of a client.
#[derive(Debug)]
pub(crate) struct Peers {
    node: Node,
    /// Launches so far, by the processes that they are over.
    launches: Mutex<BTreeMap<BTreeSet<u32>, u64>>,
    cancelled: Arc<AtomicBool>,
}

impl Peers {
    pub(crate) fn new(node: Node, cancelled: Arc<AtomicBool>) -> Self {
        Peers {
            node,
            launches: Mutex::default(),
            cancelled,
        }
    }

    /// Begins a launch of a program whose partitions are on devices of these processes. Called in
    /// the order in which launches are queued.
    pub(crate) fn launch(self: &Arc<Self>, owners: &Owners) -> Spanning {
        let mut launches = self.launches.lock().unwrap_or_else(PoisonError::into_inner);
        let number = launches
            .entry(owners.iter().copied().collect())
            .or_default();
        *number += 1;
        Spanning {
            peers: self.clone(),
            number: *number,
            owners: owners.clone(),
        }
    }

    /// What another process put under a key. Ends when the client is dropped.
    fn get(&self, key: &str) -> Result<Vec<u8>> {
        const SLICE: Duration = Duration::from_secs(2);
        let mut left = self.node.patience;
        loop {
            if self.cancelled.load(Relaxed) {
                return Err(cancelled());
            }
            match self.node.store.get(key, left.min(SLICE)) {
                Err(error) if error.kind() == ErrorKind::DeadlineExceeded && left > SLICE => {
                    left -= SLICE;
                }
                result => return result,
            }
        }
    }
}

/// A launch over several processes.
#[derive(Debug)]
pub(crate) struct Spanning {
    peers: Arc<Peers>,
    /// Its number among those over the same processes.
    pub(crate) number: u64,
    /// The process of each partition.
    owners: Owners,
}

/// A part of an input that several partitions may hold.
struct Tile {
    partitions: Vec<usize>,
}

impl Spanning {
    /// Whether the device of a partition is one of this process.
    pub(crate) fn is_own(&self, partition: usize) -> bool {
        self.owners[partition] == self.peers.node.index
    }

    /// The inputs on all partitions, from `mine`, those of the partitions of this process.
    ///
    /// # Errors
    /// That of `mine`, which the other processes get; if another process fails, launches
    /// another program, or does not launch it in time.
    pub(crate) fn exchange(
        &self,
        program: &Ready,
        mine: Result<Vec<Vec<Tensor>>>,
    ) -> Result<Vec<Vec<Tensor>>> {
        let node = &self.peers.node;
        let all: BTreeSet<u32> = self.owners.iter().copied().collect();
        let key = |process: u32| format!("launch/{all:?}/{}/{process}", self.number);
        let put = |message: &Message<'_>| node.store.put(&key(node.index), &message.write());
        let mine = mine.inspect_err(|error| _ = put(&Message::Failed(&error.to_string())))?;
        let mut rows: Vec<Option<Vec<Tensor>>> = vec![None; self.owners.len()];
        let own = (0..rows.len()).filter(|&partition| self.is_own(partition));
        own.zip(mine)
            .for_each(|(partition, row)| rows[partition] = Some(row));
        let tiles: Vec<Vec<Tile>> = (program.partitioning.inputs.iter()).map(tiles_of).collect();
        let mut sent = Vec::new();
        for (column, tiles) in tiles.iter().enumerate() {
            for tile in tiles
                .iter()
                .filter(|tile| self.sender(tile) == Some(node.index))
            {
                let row = rows[tile.partitions[0]].as_ref();
                sent.extend_from_slice(&row.expect("the sender holds the tile")[column].bytes);
            }
        }
        put(&Message::Inputs(&program.name, program.digest, &sent))?;
        let types = self.types(program)?;
        let mut received = BTreeMap::new();
        for &process in all.iter().filter(|&&process| process != node.index) {
            let message = self.peers.get(&key(process))?;
            let bytes = Message::read(&message).of(process, self.number, program)?;
            self.receive(process, bytes, &tiles, &types, &mut received)?;
        }
        Ok(self.complete(&rows, &tiles, &received))
    }

    /// The process that sends a tile: the first of its holders, if another process has none.
    fn sender(&self, tile: &Tile) -> Option<u32> {
        let holds = |process: &u32| {
            let mut holders = tile.partitions.iter();
            holders.any(|&partition| self.owners[partition] == *process)
        };
        let is_everywhere = self.owners.iter().all(holds);
        (!is_everywhere).then(|| self.owners[tile.partitions[0]])
    }

    /// The types of the shards of each input.
    fn types(&self, program: &Ready) -> Result<Vec<RankedType>> {
        let main = program.module.main()?;
        let inputs = main.body.arguments.iter().zip(&program.partitioning.inputs);
        inputs
            .map(|(&id, sharding)| {
                let ty = main.ty(id).as_tensor();
                shard_type(ty.expect("the signature has tensors"), sharding)
            })
            .collect()
    }

    /// Reads the tiles that a process has sent, in the order in which it wrote them.
    fn receive(
        &self,
        process: u32,
        mut bytes: &[u8],
        tiles: &[Vec<Tile>],
        types: &[RankedType],
        received: &mut BTreeMap<[usize; 2], Tensor>,
    ) -> Result<()> {
        for (column, (tiles, ty)) in tiles.iter().zip(types).enumerate() {
            for (number, tile) in tiles.iter().enumerate() {
                if self.sender(tile) != Some(process) {
                    continue;
                }
                let Some((part, rest)) = bytes.split_at_checked(ty.bytes()) else {
                    let message = format!("process {process} sent too few bytes of its inputs");
                    return Err(Error::new(ErrorKind::Internal, "launch", message));
                };
                received.insert([column, number], Tensor::new(ty.clone(), part.to_vec()));
                bytes = rest;
            }
        }
        Ok(())
    }

    /// The inputs of all partitions: own ones, those of own partitions with the same tile, and those
    /// that other processes have sent.
    fn complete(
        &self,
        rows: &[Option<Vec<Tensor>>],
        tiles: &[Vec<Tile>],
        received: &BTreeMap<[usize; 2], Tensor>,
    ) -> Vec<Vec<Tensor>> {
        let mut whole: Vec<Vec<Tensor>> = rows.iter().map(|_| Vec::new()).collect();
        for (column, tiles) in tiles.iter().enumerate() {
            for (number, tile) in tiles.iter().enumerate() {
                let own = tile.partitions.iter().find_map(|&at| rows[at].as_ref());
                let shared = own.map_or_else(
                    || received[&[column, number]].clone(),
                    |row| row[column].clone(),
                );
                for &partition in &tile.partitions {
                    let row = rows[partition].as_ref();
                    whole[partition]
                        .push(row.map_or_else(|| shared.clone(), |row| row[column].clone()));
                }
            }
        }
        whole
    }
}

/// The tiles of an input, by their first partition.
fn tiles_of(sharding: &HloSharding) -> Vec<Tile> {
    let mut tiles = BTreeMap::<usize, Tile>::new();
    let mut order = Vec::new();
    for (partition, &tile) in sharding.of_device.iter().enumerate() {
        let known = tiles.entry(tile).or_insert_with(|| {
            order.push(tile);
            Tile {
                partitions: Vec::new(),
            }
        });
        known.partitions.push(partition);
    }
    order.iter().filter_map(|tile| tiles.remove(tile)).collect()
}

/// What a process puts for a launch.
enum Message<'a> {
    /// Name and digest of the program, and the tiles that the process sends.
    Inputs(&'a str, [u8; 8], &'a [u8]),
    /// Why it cannot launch.
    Failed(&'a str),
}

impl<'a> Message<'a> {
    fn write(&self) -> Vec<u8> {
        match self {
            Message::Inputs(name, digest, tiles) => {
                let length = (name.len() as u32).to_le_bytes();
                [&[0], &length[..], name.as_bytes(), digest, tiles].concat()
            }
            Message::Failed(why) => [&[1], why.as_bytes()].concat(),
        }
    }

    /// A message that cannot be read is a failure.
    fn read(bytes: &'a [u8]) -> Self {
        let unreadable = Message::Failed("it sent something unreadable");
        let text = |bytes| std::str::from_utf8(bytes).ok();
        match bytes.split_first() {
            Some((0, rest)) => {
                let read = rest.split_first_chunk::<4>().and_then(|(length, rest)| {
                    let length = u32::from_le_bytes(*length) as usize;
                    let (name, rest) = rest.split_at_checked(length)?;
                    let (digest, tiles) = rest.split_first_chunk()?;
                    Some(Message::Inputs(text(name)?, *digest, tiles))
                });
                read.unwrap_or(unreadable)
            }
            Some((_, why)) => text(why).map_or(unreadable, Message::Failed),
            None => unreadable,
        }
    }

    /// The tiles that `process` sent for launch `number`, which is of `program` here.
    fn of(self, process: u32, number: u64, program: &Ready) -> Result<&'a [u8]> {
        let name = &program.name;
        match self {
            Message::Inputs(_, digest, tiles) if digest == program.digest => Ok(tiles),
            Message::Inputs(other, ..) => {
                let message = format!(
                    "launch {number} over several processes is of `{name}` here, and of `{other}` in \
                     process {process}; all processes must launch the same programs in the same order"
                );
                Err(Error::invalid("launch", message))
            }
            Message::Failed(why) => {
                let message = format!("`{name}`: process {process}: {why}");
                Err(Error::new(ErrorKind::Unavailable, "launch", message))
            }
        }
    }
}
