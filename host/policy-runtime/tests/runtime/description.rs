//! A policy's description: functions, columns, and the schema of its configuration.

use treadle_model::World;
use treadle_policy_runtime::{
    ActingColumns, InstanceOptions, LoadError, PolicyFault, PolicyModule,
};

use crate::fixture::{CONTEXT, engine};
use crate::scripted::{Described, f64s, list, scripted_as};

const SCHEMA: &str = r#"{"type": "object", "additionalProperties": false,
    "properties": {"share": {"type": "number", "maximum": 1, "default": 0.5}}}"#;

fn described(described: &Described) -> Vec<u8> {
    scripted_as(World::Eviction, described, &[("weigh", list(f64s(&[])))])
}

fn refusal(said: &Described) -> (String, String) {
    let refusal = engine().inspect(&described(said)).unwrap_err();
    (refusal.code.to_owned(), refusal.to_string())
}

#[test]
fn what_is_unknown_is_refused_with_what_is_known() {
    let said = Described {
        functions: vec!["weigh", "weight"],
        ..Described::default()
    };
    let (code, told) = refusal(&said);
    assert_eq!(code, "bad-description");
    assert!(
        told.contains("weight") && told.contains("pause-order"),
        "{told}"
    );

    for (columns, named) in [
        (vec!["idle-ms", "shoe-size"], "shoe-size"),
        (vec!["idle-ms", "idle-ms"], "twice"),
    ] {
        let (code, told) = refusal(&Described {
            columns,
            ..Described::default()
        });
        assert_eq!(code, "unknown-column");
        assert!(told.contains(named) && told.contains("price-ms"), "{told}");
    }

    let (code, told) = refusal(&Described {
        schema: r#"{"type": "object", "properties": {"share": {"type": "number"}}}"#,
        ..Described::default()
    });
    assert_eq!(code, "bad-description");
    assert!(told.contains("share has no `default`"), "{told}");
}

fn module(said: &Described) -> PolicyModule {
    let engine = engine();
    let component = engine.examine(&described(said)).unwrap().component;
    engine.compile(&component).unwrap()
}

#[test]
fn a_configuration_must_fit_the_schema() {
    let module = module(&Described {
        schema: SCHEMA,
        ..Described::default()
    });
    assert_eq!(module.description().unwrap().config_schema, SCHEMA);
    let with = |json: &str| {
        module
            .instance(&InstanceOptions::configured(json))
            .map(|_| ())
    };
    assert!(with(r#"{"share": 0.7}"#).is_ok());
    for (json, told) in [
        (r#"{"share": 7}"#, "share is 7"),
        (r#"{"shre": 0}"#, "shre"),
    ] {
        let Err(LoadError::Config(message)) = with(json) else {
            panic!("{json} is accepted")
        };
        assert!(message.contains(told), "{message}");
    }
}

#[test]
fn calls_carry_the_columns_that_are_asked_for_and_no_others() {
    let module = module(&Described {
        columns: vec!["idle-ms", "price-ms"],
        ..Described::default()
    });
    let mut policy = module.instance(&InstanceOptions::default()).unwrap();
    let mut weigh = |extra: &[f32]| {
        let programs = ActingColumns {
            tokens: &[1],
            phase_ms: &[1],
            extra,
        };
        policy.as_eviction_mut().unwrap().weigh(&CONTEXT, &programs)
    };
    // It gives no values for one row, so the fault shows that it was called.
    assert!(matches!(
        weigh(&[1.0, 2.0]),
        Err(PolicyFault::BadOutput { .. })
    ));
    for extra in [&[][..], &[1.0], &[1.0, 2.0, 3.0]] {
        assert!(
            matches!(weigh(extra), Err(PolicyFault::BadInput { .. })),
            "{extra:?}"
        );
    }
}
