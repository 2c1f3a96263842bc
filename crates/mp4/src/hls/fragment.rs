//! The samples of a fragment, in the order in which they are decoded.

use super::cursor::Runs;
use super::film::{Film, Media};
use super::mux::{Kind, Muxer, Sample};
use super::{CLOCK, Limits, Refused, Span, rescaled, too_large};

/// What a sample costs at least, so that a file cannot have any number of empty samples.
const SAMPLE_COST: u64 = 64;

/// Later times are none of a film, and must not overflow.
const TIME_MAX: u64 = 1 << 60;

impl Film<'_> {
    /// Finds the samples of a fragment. Video begins with the key frame at or before the start.
    ///
    /// # Errors
    /// The span is outside of the film, its samples are outside of the file, or there are too many.
    pub fn fragment(&self, span: Span, limits: &Limits) -> Result<Muxer, Refused> {
        if span.end_ms.is_some_and(|end_ms| end_ms <= span.start_ms) {
            return Err(Refused::Empty);
        }
        let (mut samples, mut left) = (Vec::new(), limits.bytes_max);
        let mut start_ms = span.start_ms;
        for media in &self.tracks {
            let first = self.first(media, &mut start_ms);
            add(media, first, span.end_ms, (limits, &mut left), &mut samples)?;
        }
        if samples.is_empty() {
            return Err(Refused::Empty);
        }
        samples.sort_by_key(|sample| sample.dts);
        let codecs = self.tracks.iter().map(|media| (media.kind, media.codec.clone()));
        Ok(Muxer::new(codecs, samples))
    }

    /// The first sample of a track. Video moves the start to its key frame; audio follows.
    fn first<'a>(&self, media: &Media<'a>, start_ms: &mut u64) -> Runs<'a> {
        let at = media.sample_at(*start_ms);
        if media.kind != Kind::Video || at.value().is_none() {
            return at;
        }
        let key = media.key_before(at.sample);
        if key == at.sample {
            return at;
        }
        let mut runs = Runs::new(media.times);
        runs.advance_to_sample(key);
        *start_ms = media.ms_of(runs.sum).min(*start_ms);
        runs
    }
}

/// Adds a track's samples from one on, up to a time.
fn add(
    media: &Media<'_>,
    mut times: Runs<'_>,
    end_ms: Option<u64>,
    (limits, left): (&Limits, &mut u64),
    samples: &mut Vec<Sample>,
) -> Result<(), Refused> {
    let end = end_ms.map_or(u64::MAX, |ms| media.ticks_at(ms));
    if times.value().is_none() || times.sum >= end {
        return Ok(());
    }
    let mut places = media.places(times.sample)?;
    let mut delays = media.delays.map(Runs::new);
    if let Some(delays) = &mut delays {
        delays.advance_to_sample(times.sample);
    }
    let mut keys = media.keys().map(Iterator::peekable);
    while times.value().is_some() && times.sum < end {
        let (pos, size) = places.next()?;
        if pos.checked_add(u64::from(size)).is_none_or(|end| end > limits.file_len) {
            return Err(super::Fault::of_file("mp4 file truncated").into());
        }
        let cost = u64::from(size) + SAMPLE_COST;
        let rest = left.checked_sub(cost);
        *left = rest.ok_or_else(|| too_large("fragment", limits.bytes_max))?;
        let is_key = match &mut keys {
            None => true,
            Some(keys) => {
                while keys.next_if(|key| *key < times.sample).is_some() {}
                keys.peek() == Some(&times.sample)
            }
        };
        let at = times.sum.saturating_add(media.shift);
        let delay = delays.as_ref().and_then(Runs::value).map_or(0, |delay| delay as i32);
        let clock = |ticks| rescaled(ticks, media.timescale, CLOCK).min(TIME_MAX);
        samples.push(Sample {
            pos,
            size,
            dts: clock(at.saturating_sub(media.lead)),
            pts: clock(at.saturating_add_signed(i64::from(delay))),
            kind: media.kind,
            is_key,
        });
        times.next();
        delays.iter_mut().for_each(Runs::next);
    }
    Ok(())
}
