//! The events of TensorBoard as protocol buffers: `tensorflow/core/util/event.proto` and
//! `tensorflow/core/framework/summary.proto`.

/// One event of a file.
pub(super) struct Event<'a> {
    /// Seconds since 1970.
    pub(super) wall_time: f64,
    pub(super) step: u64,
    pub(super) what: What<'a>,
}

/// Content of an event.
pub(super) enum What<'a> {
    /// Version of the format: the first event of a file.
    Version(&'a str),
    /// A process starts: events of files before at this step or later do not count.
    Start,
    /// Named values.
    Summary(Vec<(String, Value<'a>)>),
}

/// A value of a summary.
pub(super) enum Value<'a> {
    Scalar(f32),
    Text(&'a str),
    Image(Image<'a>),
}

/// A picture as a file: PNG, JPEG, GIF.
pub(super) struct Image<'a> {
    pub(super) width: u32,
    pub(super) height: u32,
    /// 1 for grey, 3 for RGB, 4 for RGBA.
    pub(super) channels: u32,
    pub(super) file: &'a [u8],
}

impl Event<'_> {
    /// The message `Event`.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut event = Message::default();
        event.fixed64(1, self.wall_time.to_bits());
        event.varint(2, self.step);
        match &self.what {
            What::Version(version) => event.bytes(3, version.as_bytes()),
            What::Start => {
                let mut session = Message::default();
                session.varint(1, 1);
                event.message(7, session);
            }
            What::Summary(values) => {
                let mut summary = Message::default();
                for (tag, value) in values {
                    summary.message(1, value.encode(tag));
                }
                event.message(5, summary);
            }
        }
        event.0
    }
}

impl Value<'_> {
    /// The message `Summary.Value`.
    fn encode(&self, tag: &str) -> Message {
        let mut message = Message::default();
        message.bytes(1, tag.as_bytes());
        match self {
            Value::Scalar(value) => message.fixed32(2, value.to_bits()),
            Value::Text(text) => {
                message.message(9, plugin("text"));
                message.message(8, string_tensor(text));
            }
            Value::Image(image) => {
                let mut picture = Message::default();
                picture.varint(1, image.height.into());
                picture.varint(2, image.width.into());
                picture.varint(3, image.channels.into());
                picture.bytes(4, image.file);
                message.message(4, picture);
            }
        }
        message
    }
}

/// The message `SummaryMetadata`: the plugin that shows a value.
fn plugin(name: &str) -> Message {
    let (mut data, mut metadata) = (Message::default(), Message::default());
    data.bytes(1, name.as_bytes());
    metadata.message(1, data);
    metadata
}

/// The message `TensorProto`: one string.
fn string_tensor(text: &str) -> Message {
    const DT_STRING: u64 = 7;
    let [mut dim, mut shape, mut tensor] = [(); 3].map(|()| Message::default());
    dim.varint(1, 1);
    shape.message(2, dim);
    tensor.varint(1, DT_STRING);
    tensor.message(2, shape);
    tensor.bytes(8, text.as_bytes());
    tensor
}

/// A message of fields by number.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, field: u64, value: u64) {
        self.number(field << 3);
        self.number(value);
    }

    fn fixed64(&mut self, field: u64, bits: u64) {
        self.number(field << 3 | 1);
        self.0.extend(bits.to_le_bytes());
    }

    fn bytes(&mut self, field: u64, bytes: &[u8]) {
        self.number(field << 3 | 2);
        self.number(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    fn fixed32(&mut self, field: u64, bits: u32) {
        self.number(field << 3 | 5);
        self.0.extend(bits.to_le_bytes());
    }

    fn message(&mut self, field: u64, message: Message) {
        self.bytes(field, &message.0);
    }

    /// Seven bits in each byte, the lowest first.
    fn number(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }
}
