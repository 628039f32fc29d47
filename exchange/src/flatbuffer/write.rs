/// Value of a field, or element of a list.
#[derive(Clone, Debug)]
pub(crate) enum Value {
    U8(u8),
    U16(u16),
    U32(u32),
    Text(String),
    Bytes(Vec<u8>),
    U16s(Vec<u16>),
    /// Fields by slot.
    Table(Vec<(usize, Value)>),
    /// Strings or tables.
    List(Vec<Value>),
}

/// Writes a buffer whose root table has these fields, by slot.
pub(crate) fn write(root: &[(usize, Value)]) -> Vec<u8> {
    let mut out = vec![0; 4];
    let at = table(&mut out, root);
    patch(&mut out, 0, at);
    out
}

impl Value {
    /// Size of the field in its table; offsets have 4 bytes.
    fn size(&self) -> usize {
        match self {
            Value::U8(_) => 1,
            Value::U16(_) => 2,
            _ => 4,
        }
    }
}

/// Writes a table after its list of fields, then the values that it points to. Returns its
/// position.
fn table(out: &mut Vec<u8>, fields: &[(usize, Value)]) -> usize {
    // Large fields first, so that each is aligned.
    let mut order: Vec<&(usize, Value)> = fields.iter().collect();
    order.sort_by_key(|(_, value)| std::cmp::Reverse(value.size()));
    let slots = fields.iter().map(|(slot, _)| slot + 1).max().unwrap_or(0);
    let (mut offsets, mut end) = (vec![0u16; slots], 4usize);
    for (slot, value) in &order {
        offsets[*slot] = short(end);
        end += value.size();
    }
    align(out, 4);
    if slots % 2 == 1 {
        out.extend([0; 2]); // The table follows its offsets and is aligned to 4 bytes.
    }
    let vtable = out.len();
    let header = [short(4 + 2 * slots), short(end)];
    for number in header.iter().chain(&offsets) {
        out.extend(number.to_le_bytes());
    }
    let at = out.len();
    out.extend(offset(at - vtable));
    for (_, value) in &order {
        match value {
            Value::U8(number) => out.push(*number),
            Value::U16(number) => out.extend(number.to_le_bytes()),
            Value::U32(number) => out.extend(number.to_le_bytes()),
            _ => out.extend([0; 4]),
        }
    }
    for (slot, value) in order {
        if let Some(target) = referenced(out, value) {
            patch(out, at + usize::from(offsets[*slot]), target);
        }
    }
    at
}

/// Writes a value that its field points to, and returns its position.
fn referenced(out: &mut Vec<u8>, value: &Value) -> Option<usize> {
    Some(match value {
        Value::U8(_) | Value::U16(_) | Value::U32(_) => return None,
        Value::Text(text) => {
            let at = vector(out, text.len(), text.bytes());
            out.push(0);
            at
        }
        Value::Bytes(bytes) => vector(out, bytes.len(), bytes.iter().copied()),
        Value::U16s(numbers) => {
            let bytes = numbers.iter().flat_map(|number| number.to_le_bytes());
            vector(out, numbers.len(), bytes)
        }
        Value::Table(fields) => table(out, fields),
        Value::List(values) => {
            let zeros = std::iter::repeat_n(0, 4 * values.len());
            let at = vector(out, values.len(), zeros);
            for (index, value) in values.iter().enumerate() {
                if let Some(target) = referenced(out, value) {
                    patch(out, at + 4 + 4 * index, target);
                }
            }
            at
        }
    })
}

fn vector(out: &mut Vec<u8>, length: usize, elements: impl Iterator<Item = u8>) -> usize {
    align(out, 4);
    let at = out.len();
    out.extend(offset(length));
    out.extend(elements);
    at
}

fn align(out: &mut Vec<u8>, size: usize) {
    out.resize(out.len().next_multiple_of(size), 0);
}

fn patch(out: &mut [u8], at: usize, target: usize) {
    out[at..at + 4].copy_from_slice(&offset(target - at));
}

fn offset(distance: usize) -> [u8; 4] {
    u32::try_from(distance)
        .expect("the caller bounds the size of a buffer to 2 GiB")
        .to_le_bytes()
}

fn short(number: usize) -> u16 {
    u16::try_from(number).expect("a table has few fields")
}
