//! Colours: a ramp on which equal steps of load look like equal steps of lightness, and the colours of everything
//! else.
//!
//! The ramp is a path through OKLCH (Björn Ottosson's perceptual space): lightness grows evenly, hue turns from indigo over
//! red to yellow, and chroma is lowered where a screen cannot show it. On a light ground the path is walked from light
//! to dark, so that no load is always the colour of the ground.

use crate::number::{byte, floor};

/// Red, green, blue.
pub type Rgb = [u8; 3];

/// Background of the picture.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Theme {
    /// Light text on a dark ground.
    #[default]
    Dark,
    /// Dark text on a light ground.
    Light,
}

/// Lightness, chroma, and hue in degrees, at equal distances along the ramp.
const DARK: [[f64; 3]; 5] = [
    [0.17, 0.025, 275.0],
    [0.37, 0.150, 292.0],
    [0.57, 0.200, 355.0],
    [0.77, 0.165, 50.0],
    [0.97, 0.110, 108.0],
];

const LIGHT: [[f64; 3]; 5] = [
    [0.97, 0.008, 270.0],
    [0.80, 0.095, 285.0],
    [0.62, 0.180, 325.0],
    [0.45, 0.180, 12.0],
    [0.28, 0.110, 35.0],
];

/// Colours besides the ramp.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Palette {
    pub(crate) ground: Rgb,
    pub(crate) ink: Rgb,
    pub(crate) faint: Rgb,
    pub(crate) bound: Rgb,
    pub(crate) gap: Rgb,
    pub(crate) mark: Rgb,
    pub(crate) alarm: Rgb,
    pub(crate) alarm_ink: Rgb,
}

impl Theme {
    pub(crate) fn palette(self) -> Palette {
        match self {
            Self::Dark => Palette {
                ground: [18, 18, 24],
                ink: [232, 232, 238],
                faint: [150, 152, 165],
                bound: [110, 116, 140],
                gap: [48, 50, 58],
                mark: [90, 220, 255],
                alarm: [255, 224, 102],
                alarm_ink: [20, 20, 20],
            },
            Self::Light => Palette {
                ground: [255, 255, 255],
                ink: [28, 28, 34],
                faint: [98, 100, 112],
                bound: [150, 154, 172],
                gap: [222, 222, 226],
                mark: [0, 110, 160],
                alarm: [122, 62, 0],
                alarm_ink: [255, 255, 255],
            },
        }
    }

    /// The colour of a value from 0 to 1; values outside are clamped, and NaN counts as 0.
    #[must_use]
    pub fn colour(self, value: f64) -> Rgb {
        let points = match self {
            Self::Dark => &DARK,
            Self::Light => &LIGHT,
        };
        let position = if value.is_nan() { 0.0 } else { value.clamp(0.0, 1.0) } * 4.0;
        let index = floor(position).min(3);
        let part = position - index as f64;
        let mix = |which: usize| {
            points[index][which] + part * (points[index + 1][which] - points[index][which])
        };
        // The shorter way round the circle of hues.
        let turn = (points[index + 1][2] - points[index][2] + 540.0).rem_euclid(360.0) - 180.0;
        shown(mix(0), mix(1), (points[index][2] + part * turn).to_radians())
    }

    /// All colours of the ramp in 256 steps.
    #[must_use]
    pub fn ramp(self) -> Vec<Rgb> {
        (0..=255).map(|step| self.colour(f64::from(step) / 255.0)).collect()
    }
}

/// The nearest colour that sRGB can represent, found by lowering the chroma.
fn shown(lightness: f64, chroma: f64, hue: f64) -> Rgb {
    let (mut low, mut high) = (0.0, chroma);
    let fits = |linear: [f64; 3]| linear.iter().all(|part| (-0.0005..=1.0005).contains(part));
    if !fits(linear(lightness, chroma, hue)) {
        for _ in 0..20 {
            let middle = f64::midpoint(low, high);
            if fits(linear(lightness, middle, hue)) {
                low = middle;
            } else {
                high = middle;
            }
        }
        high = low;
    }
    linear(lightness, high, hue).map(|part| {
        let part = part.clamp(0.0, 1.0);
        let curved =
            if part <= 0.003_130_8 { 12.92 * part } else { 1.055 * part.powf(1.0 / 2.4) - 0.055 };
        byte(curved * 255.0)
    })
}

/// OKLCH to linear sRGB.
fn linear(lightness: f64, chroma: f64, hue: f64) -> [f64; 3] {
    let (a, b) = (chroma * hue.cos(), chroma * hue.sin());
    let long = (lightness + 0.396_337_777_4 * a + 0.215_803_757_3 * b).powi(3);
    let middle = (lightness - 0.105_561_345_8 * a - 0.063_854_172_8 * b).powi(3);
    let short = (lightness - 0.089_484_177_5 * a - 1.291_485_548_0 * b).powi(3);
    [
        4.076_741_662_1 * long - 3.307_711_591_3 * middle + 0.230_969_929_2 * short,
        -1.268_438_004_6 * long + 2.609_757_401_1 * middle - 0.341_319_396_5 * short,
        -0.004_196_086_3 * long - 0.703_418_614_7 * middle + 1.707_614_701_0 * short,
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Relative luminance, 0 to 1.
    fn luminance(colour: Rgb) -> f64 {
        let part = |byte: u8| (f64::from(byte) / 255.0).powf(2.2);
        0.2126 * part(colour[0]) + 0.7152 * part(colour[1]) + 0.0722 * part(colour[2])
    }

    #[test]
    fn more_load_is_lighter_on_dark_and_darker_on_light() {
        for pair in Theme::Dark.ramp().windows(8).step_by(7) {
            assert!(luminance(pair[7]) > luminance(pair[0]), "{pair:?}");
        }
        for pair in Theme::Light.ramp().windows(8).step_by(7) {
            assert!(luminance(pair[7]) < luminance(pair[0]), "{pair:?}");
        }
    }

    #[test]
    fn values_outside_take_the_nearer_end() {
        assert_eq!(Theme::Dark.colour(-3.0), Theme::Dark.colour(0.0));
        assert_eq!(Theme::Dark.colour(f64::NAN), Theme::Dark.colour(0.0));
        assert_eq!(Theme::Light.colour(7.0), Theme::Light.colour(1.0));
    }
}
