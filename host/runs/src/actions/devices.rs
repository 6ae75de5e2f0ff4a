//! Checks an action's demand for devices against its service and the machine.

use treadle_actions::ServiceSpec;
use treadle_config::GPU;
use treadle_core::actions::{ActionSpec, Demand};
use treadle_wire::{ErrorBody, ErrorCode};

/// The key of `cost` for the memory of each device.
pub(super) const GPU_MEMORY: &str = "gpu_memory";

/// A client's demand for devices.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct DevicesAsked {
    /// Whether it has a number of devices.
    pub(super) number_named: bool,
    /// Memory that each must have, in bytes.
    pub(super) memory_bytes: Option<u64>,
}

/// Sets the numbers of devices that the service runs on, if the action has none.
///
/// # Errors
/// A number that the service can't use, or memory that the smallest device does not have.
pub(super) fn fit(
    spec: &mut ActionSpec,
    asked: DevicesAsked,
    service: Option<&ServiceSpec>,
    smallest_bytes: Option<u64>,
) -> Result<(), ErrorBody> {
    if let Some(service) = service.filter(|service| !service.gpus.is_empty()) {
        fit_number(spec, asked.number_named, service)?;
    }
    let draws = spec.demands.iter().any(|demand| &*demand.resource == GPU);
    if asked.memory_bytes.is_some() && !draws {
        let message = format!("`cost.{GPU_MEMORY}` needs devices; send their number in `cost.gpu`");
        return Err(wrong(GPU_MEMORY, message));
    }
    let of_service = service.map_or(0, |service| service.gpu_memory_bytes);
    let needed = of_service.max(asked.memory_bytes.unwrap_or(0));
    match smallest_bytes {
        Some(smallest) if needed > smallest => {
            let message = format!(
                "`cost.{GPU_MEMORY}` needs {needed} bytes per device, but the smallest has \
                 {smallest}; request less"
            );
            Err(wrong(GPU_MEMORY, message))
        }
        _ => Ok(()),
    }
}

fn fit_number(spec: &mut ActionSpec, named: bool, service: &ServiceSpec) -> Result<(), ErrorBody> {
    let is_gpu = |demand: &Demand| &*demand.resource == GPU;
    let mut others = spec.demands.iter().filter(|demand| !is_gpu(demand));
    let is_elastic = others.any(|demand| demand.options.len() > 1);
    let Some(demand) = spec.demands.iter_mut().find(|demand| is_gpu(demand)) else {
        return Ok(());
    };
    let may = &service.gpus;
    if !named {
        // One resource of an action may have several amounts.
        let most = if is_elastic { 1 } else { may.len() };
        demand.options = may.iter().copied().take(most).collect();
        return Ok(());
    }
    match demand.options.iter().find(|units| !may.contains(units)) {
        Some(units) => {
            let message = format!(
                "`cost.gpu` has {units}; service `{}` runs on {may:?} devices",
                service.name
            );
            Err(wrong(GPU, message))
        }
        None => Ok(()),
    }
}

fn wrong(resource: &str, message: String) -> ErrorBody {
    ErrorBody::new(ErrorCode::InvalidField, message).with_param(format!("cost.{resource}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use treadle_model::Span;

    fn service(gpus: &[u64], gpu_memory_bytes: u64) -> ServiceSpec {
        let json = json!({
            "name": "judge", "lifecycle": {"process": {"command": ["serve"]}},
            "ready_path": "/", "ready_s_max": 1, "gpus": gpus, "gpu_memory_bytes": gpu_memory_bytes,
        });
        ServiceSpec::parse(json.to_string().as_bytes()).expect("it is one")
    }

    fn action(demands: &[(&str, &[u64])]) -> ActionSpec {
        let demands = demands.iter().map(|(resource, options)| Demand {
            resource: (*resource).into(),
            options: options.to_vec(),
        });
        ActionSpec {
            program: None,
            job: "job".into(),
            kind: "judge".into(),
            demands: demands.collect(),
            durations: Vec::new(),
            service: Some("judge".into()),
            run_max: Span::from_secs(1),
            start_by: None,
            idempotent: false,
            idempotency_key: None,
            body: "".into(),
        }
    }

    fn asked(number_named: bool, memory_bytes: Option<u64>) -> DevicesAsked {
        DevicesAsked {
            number_named,
            memory_bytes,
        }
    }

    #[test]
    fn a_service_says_on_how_many_devices_it_runs() {
        let judge = service(&[1, 2], 0);
        let fitted = |mut action: ActionSpec, named| {
            let fit = fit(&mut action, asked(named, None), Some(&judge), None);
            fit.map(|()| action.demands.last().expect("some").options.clone())
        };
        assert_eq!(fitted(action(&[("gpu", &[1])]), false), Ok(vec![1, 2]));
        assert_eq!(fitted(action(&[("gpu", &[2])]), true), Ok(vec![2]));
        let elastic = action(&[("cpu", &[1, 2]), ("gpu", &[1])]);
        assert_eq!(fitted(elastic, false), Ok(vec![1]));
        let error = fitted(action(&[("gpu", &[2, 4])]), true).expect_err("4 is too many");
        assert_eq!(error.param.as_deref(), Some("cost.gpu"));
        assert!(error.message.contains("has 4"), "{}", error.message);
    }

    #[test]
    fn devices_have_the_memory_that_is_asked_for() {
        let large = service(&[], 50 << 30);
        let fits = |memory, service: Option<&ServiceSpec>, smallest| {
            let mut action = action(&[("gpu", &[1])]);
            fit(&mut action, asked(true, memory), service, smallest).is_ok()
        };
        assert!(fits(Some(40 << 30), None, Some(48 << 30)));
        assert!(!fits(Some(49 << 30), None, Some(48 << 30)));
        assert!(!fits(None, Some(&large), Some(48 << 30)));
        // The memory of devices is unknown.
        assert!(fits(None, Some(&large), None));
        let mut without = action(&[("cpu", &[1])]);
        let error = fit(&mut without, asked(false, Some(1)), None, None);
        assert!(error.is_err_and(|error| error.message.contains("cost.gpu")));
    }
}
