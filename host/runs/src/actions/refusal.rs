//! Refusals of actions, with the fields of the API.

use treadle_config::MEMORY;
use treadle_core::actions::ActionError;
use treadle_model::tenant::split;
use treadle_model::{ActionId, Tenant};
use treadle_wire::{ErrorBody, ErrorCode};

use super::submission::MEBIBYTE;

/// The action does not exist, or belongs to another tenant.
pub(super) fn unknown(action: ActionId) -> ErrorBody {
    let message = format!(
        "no action {} on record; GET /api/v1/actions lists all",
        action.0
    );
    ErrorBody::new(ErrorCode::ActionUnknown, message)
}

/// Its program is not live.
pub(super) fn program_unknown(tenant: &Tenant, key: &str) -> ErrorBody {
    let program = tenant.outside(key).unwrap_or(key);
    let message =
        format!("program `{program}` is not live; start it with a step, or leave `program_id` out");
    ErrorBody::new(ErrorCode::ProgramUnknown, message).with_param("program_id")
}

/// Its program belongs to another job.
pub(super) fn of_another_job(tenant: &Tenant, program: &str, job: &str) -> ErrorBody {
    let name = |inside| tenant.outside(inside).unwrap_or_default().to_owned();
    let message = format!(
        "program `{}` belongs to job `{}`; leave `job` out",
        name(program),
        name(job)
    );
    ErrorBody::new(ErrorCode::InvalidField, message).with_param("job")
}

fn of_cost(resource: &str, problem: impl std::fmt::Display) -> ErrorBody {
    let field = format!("cost.{resource}");
    let message = format!("`{field}` {problem}");
    ErrorBody::new(ErrorCode::InvalidField, message).with_param(field)
}

/// An amount in the units of the API.
fn amount(resource: &str, units: u64) -> String {
    if resource == MEMORY {
        return format!("{} bytes", units.saturating_mul(MEBIBYTE));
    }
    units.to_string()
}

/// The refusal for an error about an action's cost; `None` for other errors.
fn of_resource(error: &ActionError) -> Option<ErrorBody> {
    Some(match error {
        ActionError::ResourceTwice { resource } => {
            of_cost(resource, "occurs twice; merge the entries")
        }
        ActionError::UnknownResource { resource } => of_cost(
            resource,
            "is not a resource of this daemon; GET /api/v1/resources lists all",
        ),
        ActionError::BadOptions { resource, options } => of_cost(
            resource,
            format_args!("has {options} amounts; send 1 to 64"),
        ),
        ActionError::NotAscending { resource } => {
            of_cost(resource, "must be ascending amounts above 0; sort them")
        }
        ActionError::TooManyUnits {
            resource,
            units,
            most,
        } => of_cost(
            resource,
            format_args!("has {units} units; send at most {most}"),
        ),
        ActionError::NoChunk { resource, units } => of_cost(
            resource,
            format_args!("is {units}; devices come in chunks of 1, 2, 4 and 8"),
        ),
        ActionError::NeverFits {
            resource,
            least,
            most,
        } => {
            let (least, most) = (amount(resource, *least), amount(resource, *most));
            of_cost(
                resource,
                format_args!("needs at least {least}, but this daemon has {most}; request less"),
            )
        }
        ActionError::BeyondShare {
            resource,
            least,
            most,
            total,
        } => {
            let amounts = [*least, *most, *total].map(|units| amount(resource, units));
            let [least, most, total] = amounts;
            let refused = of_cost(
                resource,
                format_args!(
                    "needs at least {least}, but the tenant's share is {most} of {total}; request \
                     less, or have an admin of the daemon raise its limit `action_percent`"
                ),
            );
            ErrorBody {
                code: ErrorCode::TenantLimit,
                ..refused
            }
        }
        ActionError::TwoElastic { first, second } => of_cost(
            second,
            format_args!("has several amounts, and so has `cost.{first}`; fix one of them"),
        ),
        _ => return None,
    })
}

/// The refusal of a service beyond the limits.
pub(super) fn services_full() -> ErrorBody {
    let message = "the limit on services is reached (256 per tenant, and its share of 1,024 in \
                   total); replace one of your own";
    ErrorBody::new(ErrorCode::TenantLimit, message)
}

/// The refusal for the core's error.
pub(super) fn of(tenant: &Tenant, error: ActionError) -> ErrorBody {
    if let Some(refused) = of_resource(&error) {
        return refused;
    }
    match error {
        ActionError::DurationsMismatch {
            durations, options, ..
        } => {
            let message = format!(
                "`durations_us` has {durations} entries for {options} amounts; send one for each, \
                 or none"
            );
            ErrorBody::new(ErrorCode::InvalidField, message).with_param("durations_us")
        }
        ActionError::UnknownService { service } => {
            let service = split(&service).1;
            let message = format!(
                "`run.service.name` is `{service}`, which is not declared; PUT /api/v1/services/{service}"
            );
            ErrorBody::new(ErrorCode::InvalidField, message).with_param("run.service.name")
        }
        ActionError::ServiceWithoutDevices { service, .. } => of_cost(
            "gpu",
            format_args!(
                "must be a number of devices; service `{}` needs them",
                split(&service).1
            ),
        ),
        ActionError::UnknownProgram { program } => program_unknown(tenant, &program),
        ActionError::NoRunTime => {
            let message = "`run_s_max` is 0; send the maximum run time in seconds";
            ErrorBody::new(ErrorCode::InvalidField, message).with_param("run_s_max")
        }
        ActionError::QueueFull { .. } => ErrorBody::new(ErrorCode::QueueFull, error.to_string()),
        ActionError::KeyTaken { action, .. } => {
            let message = format!(
                "`idempotency_key` belongs to action {}, which differs; use a new key",
                action.0
            );
            ErrorBody::new(ErrorCode::IdempotencyKeyTaken, message).with_param("idempotency_key")
        }
        // The other errors are about the cost as a whole.
        _ => {
            let message = format!("`cost`: {error}");
            ErrorBody::new(ErrorCode::InvalidField, message).with_param("cost")
        }
    }
}
