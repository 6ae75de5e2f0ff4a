//! The snapshot: a mark with the format's version, the model, the common figures, the views, then
//! for each group its number, the totals of its finished programs, and the observations of live
//! ones, each the oldest first. All numbers have 8 bytes, little-endian.

use treadle_plugin::PolicyError;
use treadle_plugin::recent::Recent;
use treadle_plugin::ridge::Ridge;

use crate::features::{Common, GroupView};
use crate::groups::{Group, Mean, Observation};
use crate::model::{Model, Residuals};
use crate::views::{ViewHistory, no_views};

const MARK: &[u8; 8] = b"heddle-2";

pub(crate) fn write(
    model: &Model,
    common: &Common,
    view_history: &ViewHistory,
    groups: &Recent<u64, Group>,
) -> Vec<u8> {
    let mut bytes = MARK.to_vec();
    let mut put = |number: f64| bytes.extend(number.to_le_bytes());
    model.all.numbers().for_each(&mut put);
    for stage in &model.stages {
        stage.ridge.numbers().for_each(&mut put);
        let residuals = stage.residuals;
        put(residuals.count);
        residuals.came.into_iter().for_each(&mut put);
        residuals.estimated.into_iter().for_each(&mut put);
        put(residuals.above);
        stage
            .coefficients
            .iter()
            .flatten()
            .copied()
            .for_each(&mut put);
    }
    put(model.unfitted);
    model.largest.into_iter().for_each(&mut put);
    let common = [common.total, common.failed]
        .into_iter()
        .chain(common.so_far);
    common.flat_map(numbers_of).for_each(&mut put);
    let view_history = view_history.oldest_first();
    bytes.extend((view_history.len() as u64).to_le_bytes());
    for (digest, view) in view_history {
        bytes.extend(digest.to_le_bytes());
        bytes.extend(view.iter().flat_map(|value| value.to_le_bytes()));
    }
    for (number, group) in groups.oldest_first() {
        bytes.extend(number.to_le_bytes());
        let totals = [group.total, group.fresh].into_iter().flat_map(numbers_of);
        bytes.extend(totals.flat_map(f64::to_le_bytes));
        let observations = group.observations();
        bytes.extend((observations.len() as u64).to_le_bytes());
        bytes.extend(observations.flat_map(|seen| seen.word().to_le_bytes()));
    }
    bytes
}

fn numbers_of(mean: Mean) -> [f64; 2] {
    [mean.count, mean.value]
}

/// The numbers of a snapshot, one after the other.
struct Numbers<'b> {
    rest: &'b [u8],
}

impl Numbers<'_> {
    fn bits(&mut self) -> Option<u64> {
        let (first, rest) = self.rest.split_first_chunk()?;
        self.rest = rest;
        Some(u64::from_le_bytes(*first))
    }

    fn view(&mut self) -> Option<GroupView> {
        let mut view = GroupView::default();
        for value in &mut view {
            let (first, rest) = self.rest.split_first_chunk()?;
            self.rest = rest;
            *value = Some(f32::from_le_bytes(*first)).filter(|value| value.abs() < 1e6)?;
        }
        Some(view)
    }

    fn mean(&mut self) -> Option<Mean> {
        let (count, value) = (self.next()?, self.next()?);
        (count >= 0.0).then_some(Mean { count, value })
    }
}

impl Iterator for Numbers<'_> {
    type Item = f64;

    fn next(&mut self) -> Option<f64> {
        let number = f64::from_bits(self.bits()?);
        // Sums of what is finite are; anything beyond was not written here.
        (number.abs() < 1e150).then_some(number)
    }
}

/// Parses a snapshot, keeping the newest `groups_max` groups. `empty` has the guesses, which are
/// not saved.
pub(crate) fn read(
    bytes: &[u8],
    empty: Model,
    groups_max: usize,
) -> Result<(Model, Common, ViewHistory, Recent<u64, Group>), PolicyError> {
    let rest = bytes
        .strip_prefix(MARK)
        .ok_or_else(|| invalid("it does not begin with the mark of version 2"))?;
    let mut numbers = Numbers { rest };
    let wrong = || invalid("it ends early, or a figure is out of range");
    let (model, common) = read_model(&mut numbers, empty).ok_or_else(wrong)?;
    let mut view_history = no_views();
    for _ in 0..numbers.bits().ok_or_else(wrong)? {
        let digest = numbers.bits().ok_or_else(wrong)?;
        view_history.insert(digest, numbers.view().ok_or_else(wrong)?);
    }
    let mut groups = Recent::new(groups_max);
    while !numbers.rest.is_empty() {
        let number = numbers.bits().ok_or_else(wrong)?;
        let (total, fresh) = (numbers.mean(), numbers.mean());
        let (Some(total), Some(fresh)) = (total, fresh) else {
            return Err(wrong());
        };
        let observations = numbers.bits().ok_or_else(wrong)?;
        let group: &mut Group = groups.touch(number);
        (group.total, group.fresh) = (total, fresh);
        for _ in 0..observations {
            group.see(Observation::from_word(numbers.bits().ok_or_else(wrong)?));
        }
        group.summarise();
    }
    Ok((model, common, view_history, groups))
}

fn read_model(numbers: &mut Numbers<'_>, mut model: Model) -> Option<(Model, Common)> {
    model.all = read_ridge(numbers)?;
    for stage in &mut model.stages {
        stage.ridge = read_ridge(numbers)?;
        let mut not_negative = || numbers.next().filter(|number| *number >= 0.0);
        stage.residuals = Residuals {
            count: not_negative()?,
            came: [not_negative()?, not_negative()?],
            estimated: [not_negative()?, not_negative()?],
            above: not_negative()?,
        };
        for coefficient in stage.coefficients.iter_mut().flatten() {
            *coefficient = numbers.next()?;
        }
    }
    model.unfitted = numbers.next()?;
    model.largest = [numbers.next()?, numbers.next()?];
    if model
        .largest
        .iter()
        .any(|largest| !(0.0..=128.0).contains(largest))
    {
        return None;
    }
    let mut common = Common {
        total: numbers.mean()?,
        failed: numbers.mean()?,
        ..Common::default()
    };
    for mean in &mut common.so_far {
        *mean = numbers.mean()?;
    }
    Some((model, common))
}

fn read_ridge<const D: usize, const T: usize>(numbers: &mut Numbers<'_>) -> Option<Ridge<D, T>> {
    Ridge::from_numbers(numbers).filter(|ridge| ridge.rows() >= 0.0)
}

fn invalid(why: &str) -> PolicyError {
    PolicyError::failed(format!(
        "the snapshot can't be read: {why}; start without it"
    ))
}
