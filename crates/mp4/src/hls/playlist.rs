//! Playlists: a film in fragments that begin at key frames.

use super::film::{Film, Media};
use super::{Limits, Refused, Span, cursor::Runs, too_large};

/// A requested playlist.
#[derive(Clone, Copy, Debug)]
pub struct Playlist<'a> {
    /// The part of the film.
    pub span: Span,
    /// The least length of a fragment but the last, in milliseconds; not 0.
    pub fragment_ms: u64,
    /// Where players begin, in milliseconds from the start, or from the end if negative.
    pub offset_ms: Option<i64>,
    /// The fragments' URI up to the arguments, for example `film.mp4.ts`.
    pub uri: &'a [u8],
    /// More arguments of the fragments' URIs.
    pub args: &'a [u8],
}

impl Film<'_> {
    /// Writes a playlist.
    ///
    /// # Errors
    /// The span is outside of the film, or the playlist is too large.
    pub fn playlist(&self, wanted: &Playlist<'_>, limits: &Limits) -> Result<Vec<u8>, Refused> {
        let cuts = self.cuts(wanted, limits)?;
        let pairs = || cuts.iter().zip(cuts.iter().skip(1)).map(|(from, to)| (*from, *to));
        // RFC 8216, 4.3.3.1: durations are compared as rounded to seconds.
        let seconds = |(from, to): (u64, u64)| (to - from).saturating_add(500) / 1000;
        let target = pairs().map(seconds).max().unwrap_or(0).max(1);
        let mut out = Vec::new();
        out.extend_from_slice(b"#EXTM3U\n#EXT-X-VERSION:3\n");
        out.extend_from_slice(format!("#EXT-X-TARGETDURATION:{target}\n").as_bytes());
        out.extend_from_slice(b"#EXT-X-PLAYLIST-TYPE:VOD\n");
        if let Some(offset) = wanted.offset_ms {
            let (sign, ms) = (if offset < 0 { "-" } else { "" }, offset.unsigned_abs());
            let all = cuts.last().zip(cuts.first()).map_or(0, |(end, start)| end - start);
            let offset = seconds_of(ms.min(all));
            out.extend_from_slice(format!("#EXT-X-START:TIME-OFFSET={sign}{offset}\n").as_bytes());
        }
        out.push(b'\n');
        for (from, to) in pairs() {
            let (start, end) = (seconds_of(from), seconds_of(to));
            out.extend_from_slice(format!("#EXTINF:{},\n", seconds_of(to - from)).as_bytes());
            out.extend_from_slice(wanted.uri);
            out.extend_from_slice(format!("?start={start}&end={end}").as_bytes());
            if !wanted.args.is_empty() {
                out.push(b'&');
                out.extend_from_slice(wanted.args);
            }
            out.push(b'\n');
            if out.len() as u64 > limits.bytes_max {
                return Err(too_large("playlist", limits.bytes_max).into());
            }
        }
        out.extend_from_slice(b"\n#EXT-X-ENDLIST\n");
        Ok(out)
    }

    /// The times at which fragments begin, and the end of the last.
    fn cuts(&self, wanted: &Playlist<'_>, limits: &Limits) -> Result<Vec<u64>, Refused> {
        let end = wanted.span.end_ms.unwrap_or(u64::MAX).min(self.end_ms());
        let track = self.tracks.first().filter(|_| wanted.span.start_ms < end);
        let track = track.ok_or(Refused::Empty)?;
        let mut boundaries = Boundaries::new(track);
        let mut from = boundaries.before(wanted.span.start_ms);
        // An entry of the list is longer than this, so it is refused before it is written.
        let max = limits.bytes_max / 32;
        let mut cuts = vec![from];
        while let Some(next) = boundaries.after(from.saturating_add(wanted.fragment_ms)) {
            if next >= end {
                break;
            }
            if cuts.len() as u64 > max {
                return Err(too_large("playlist", limits.bytes_max).into());
            }
            cuts.push(next);
            from = next;
        }
        cuts.push(end);
        Ok(cuts)
    }
}

/// The times at which a fragment can begin, from first to last.
struct Boundaries<'m, 'a, K> {
    track: &'m Media<'a>,
    keys: Option<K>,
    runs: Runs<'a>,
}

impl<'m, 'a> Boundaries<'m, 'a, Box<dyn Iterator<Item = u64> + 'a>> {
    fn new(track: &'m Media<'a>) -> Self {
        let keys = track.keys().map(|keys| Box::new(keys) as Box<dyn Iterator<Item = u64> + 'a>);
        Boundaries { track, keys, runs: Runs::new(track.times) }
    }

    /// The time of the key frame that a player needs for this time; 0 before the first sample.
    fn before(&self, ms: u64) -> u64 {
        let at = self.track.sample_at(ms);
        let key = self.track.key_before(at.sample);
        if key == 0 {
            return 0;
        }
        let mut runs = self.runs;
        runs.advance_to_sample(key);
        if runs.value().is_some() { self.track.ms_of(runs.sum).min(ms) } else { ms }
    }

    /// The first boundary at or after a time.
    fn after(&mut self, ms: u64) -> Option<u64> {
        let wanted = self.track.ticks_at(ms);
        match &mut self.keys {
            None => self.runs.advance_to_sum(wanted),
            Some(keys) => loop {
                self.runs.advance_to_sample(keys.next()?);
                if self.runs.value().is_none() || self.runs.sum >= wanted {
                    break;
                }
            },
        }
        self.runs.value().map(|_| self.track.ms_of(self.runs.sum))
    }
}

fn seconds_of(ms: u64) -> String {
    format!("{}.{:03}", ms / 1000, ms % 1000)
}
