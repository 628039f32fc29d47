//! Marks of the steps as a plane of `tensorflow.profiler.XSpace`. A plane is appended to the
//! serialized trace of a plugin: of two serialized messages one after the other, repeated fields
//! are joined.

use super::now;

/// The time between the ends of steps on the host, in nanoseconds since 1970.
#[derive(Debug)]
pub(super) struct Steps {
    first: u64,
    /// Start of the first step, and end of each.
    times: Vec<u64>,
}

impl Steps {
    /// Marks that begin now, with this step.
    pub(super) fn starting_at(step: u64) -> Self {
        Steps {
            first: step,
            times: vec![now()],
        }
    }

    /// A step ends now.
    pub(super) fn end(&mut self, step: u64) {
        if step >= self.first {
            self.times.push(now());
        }
    }

    /// The field `planes` of an `XSpace`.
    pub(super) fn encoded(&self) -> Vec<u8> {
        const PICOSECONDS: u64 = 1000;
        let start = self.times[0];
        let (mut line, mut plane) = (Message::default(), Message::default());
        plane.bytes(2, b"halite");
        line.bytes(2, b"steps").number(3, start);
        for (index, span) in self.times.windows(2).enumerate() {
            // 0 is the value of a field that is missing.
            let (id, step) = (index as u64 + 1, self.first + index as u64);
            let mut event = Message::default();
            event
                .number(1, id)
                .number(2, span[0].saturating_sub(start) * PICOSECONDS)
                .number(3, span[1].saturating_sub(span[0]) * PICOSECONDS);
            let mut number = Message::default();
            number.number(1, 1).number(4, step);
            event.message(4, &number);
            line.message(4, &event);
            let mut described = Message::default();
            described
                .number(1, id)
                .bytes(2, format!("step {step}").as_bytes());
            plane.message(4, &entry(id, &described));
        }
        plane.message(3, &line);
        let mut stat = Message::default();
        stat.number(1, 1).bytes(2, b"step_num");
        plane.message(5, &entry(1, &stat));
        let mut space = Message::default();
        space.message(1, &plane);
        space.0
    }
}

/// An entry of a map.
fn entry(key: u64, value: &Message) -> Message {
    let mut entry = Message::default();
    entry.number(1, key).message(2, value);
    entry
}

/// A serialized protobuf message.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    fn number(&mut self, field: u64, value: u64) -> &mut Self {
        self.varint(field << 3);
        self.varint(value);
        self
    }

    fn bytes(&mut self, field: u64, bytes: &[u8]) -> &mut Self {
        self.varint(field << 3 | 2);
        self.varint(bytes.len() as u64);
        self.0.extend(bytes);
        self
    }

    fn message(&mut self, field: u64, message: &Message) -> &mut Self {
        self.bytes(field, &message.0)
    }
}
