//! Formats numbers as C's `printf` does, which TensorFlow uses.

/// The notation of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Notation {
    /// `%f`: digits after the point.
    Fixed,
    /// `%e`: one digit before the point, and an exponent.
    Scientific,
    /// `%g`: the shorter one, without trailing zeros.
    Shortest,
}

/// The flag of a format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flag {
    None,
    /// Pads with zeros.
    Zero,
    /// Always writes a sign.
    Plus,
    /// Writes a blank in place of a plus sign.
    Space,
    /// Pads on the right.
    Left,
    /// The alternative form.
    Hash,
}

/// A format such as `%08.3f`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Format {
    pub(crate) notation: Notation,
    pub(crate) flag: Flag,
    pub(crate) width: usize,
    pub(crate) precision: Option<usize>,
}

impl Format {
    /// Writes a number with digits.
    pub(crate) fn float(&self, value: f64) -> String {
        let digits = self.precision.unwrap_or(6);
        let body = match self.notation {
            _ if value.is_nan() => "nan".to_owned(),
            _ if value.is_infinite() => "inf".to_owned(),
            Notation::Fixed => fixed(value.abs(), digits),
            Notation::Scientific => scientific(value.abs(), digits),
            Notation::Shortest => shortest(value.abs(), digits),
        };
        let negative = value.is_sign_negative() && !value.is_nan();
        self.padded(&body, negative, true, value.is_finite())
    }

    /// Formats an integer given by its magnitude; only signed types show a plus sign.
    pub(crate) fn integer(&self, magnitude: u64, negative: bool, signed: bool) -> String {
        self.padded(&magnitude.to_string(), negative, signed, true)
    }

    /// Pads text to the width; zeros are for numbers.
    pub(crate) fn text(&self, text: &[u8]) -> Vec<u8> {
        let missing = self.width.saturating_sub(text.len());
        let mut out = Vec::with_capacity(text.len() + missing);
        if self.flag != Flag::Left {
            out.resize(missing, b' ');
        }
        out.extend_from_slice(text);
        if self.flag == Flag::Left {
            out.resize(text.len() + missing, b' ');
        }
        out
    }

    fn padded(&self, body: &str, negative: bool, signed: bool, is_number: bool) -> String {
        let sign = match (negative, self.flag) {
            (true, _) => "-",
            (false, Flag::Plus) if signed => "+",
            (false, Flag::Space) if signed => " ",
            _ => "",
        };
        let missing = self.width.saturating_sub(sign.len() + body.len());
        match self.flag {
            Flag::Left => format!("{sign}{body}{}", " ".repeat(missing)),
            Flag::Zero if is_number => format!("{sign}{}{body}", "0".repeat(missing)),
            _ => format!("{}{sign}{body}", " ".repeat(missing)),
        }
    }
}

/// Returns a number in the shorter of two lengths, if it parses to the same number.
pub(crate) fn round_trip_f32(value: f32) -> String {
    let short = signed_shortest(f64::from(value), 6);
    if short.parse::<f32>().is_ok_and(|back| back == value) || !value.is_finite() {
        return short;
    }
    signed_shortest(f64::from(value), 9)
}

/// As [`round_trip_f32`], for a double.
pub(crate) fn round_trip_f64(value: f64) -> String {
    let short = signed_shortest(value, 15);
    if short.parse::<f64>().is_ok_and(|back| back == value) || !value.is_finite() {
        return short;
    }
    signed_shortest(value, 17)
}

fn signed_shortest(value: f64, precision: usize) -> String {
    let format = Format { notation: Notation::Shortest, flag: Flag::None, width: 0, precision: Some(precision) };
    format.float(value)
}

fn fixed(value: f64, digits: usize) -> String {
    format!("{value:.digits$}")
}

fn scientific(value: f64, digits: usize) -> String {
    let text = format!("{value:.digits$e}");
    // C writes the exponent with its sign and at least two digits.
    match text.split_once('e') {
        Some((mantissa, exponent)) => {
            let exponent: i32 = exponent.parse().unwrap_or(0);
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{mantissa}e{sign}{:02}", exponent.abs())
        }
        None => text,
    }
}

fn shortest(value: f64, precision: usize) -> String {
    let precision = precision.max(1);
    let text = scientific(value, precision - 1);
    let exponent: i64 = text.split_once('e').and_then(|(_, exponent)| exponent.parse().ok()).unwrap_or(0);
    if exponent < -4 || exponent >= precision as i64 {
        return match text.split_once('e') {
            Some((mantissa, exponent)) => format!("{}e{exponent}", without_zeros(mantissa)),
            None => text,
        };
    }
    let digits = (precision as i64 - 1 - exponent).max(0) as usize;
    without_zeros(&fixed(value, digits)).to_owned()
}

fn without_zeros(text: &str) -> &str {
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { text }
}
