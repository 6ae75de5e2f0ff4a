//! A section of the configuration, and the macro that defines one.
//!
//! A key's doc comment is its row in the reference, so the two can't drift apart.

use std::net::SocketAddr;

use treadle_trust::Secret;

/// The form of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// Any text.
    Text,
    /// A text that is never shown; its key with the suffix `_file` names a file that holds it.
    Secret,
    /// An address and a port.
    Address,
    /// A whole number.
    Whole,
    /// A number.
    Fraction,
    /// `true` or `false`.
    Flag,
    /// One of a few choices.
    Choice(&'static [&'static str]),
    /// A list of texts.
    Texts,
    /// A list of engines: URLs, or tables with a URL.
    Endpoints,
}

impl Form {
    /// The expected form, for error messages.
    pub(super) fn expected(self) -> String {
        match self {
            Self::Text | Self::Secret => "text".into(),
            Self::Address => "an address and a port such as 127.0.0.1:8300".into(),
            Self::Whole => "a whole number".into(),
            Self::Fraction => "a number".into(),
            Self::Flag => "true or false".into(),
            Self::Choice(words) => format!("one of {}", words.join(", ")),
            Self::Texts => "a list of texts such as [\"a\", \"b\"]".into(),
            Self::Endpoints => "a list of URLs such as [\"http://10.0.0.1:8000\"], or of tables \
                                { url, kind, capacity_tokens, class, profile } with capacity_tokens of at most 2^40"
                .into(),
        }
    }
}

/// A type that a key may have.
pub(super) trait Setting {
    /// The form of its values.
    const FORM: Form;
}

impl Setting for String {
    const FORM: Form = Form::Text;
}
impl Setting for Secret {
    const FORM: Form = Form::Secret;
}
impl Setting for Vec<String> {
    const FORM: Form = Form::Texts;
}
impl Setting for SocketAddr {
    const FORM: Form = Form::Address;
}
impl Setting for u32 {
    const FORM: Form = Form::Whole;
}
impl Setting for u64 {
    const FORM: Form = Form::Whole;
}
impl Setting for usize {
    const FORM: Form = Form::Whole;
}
impl Setting for f64 {
    const FORM: Form = Form::Fraction;
}
impl Setting for bool {
    const FORM: Form = Form::Flag;
}

/// One key of the configuration.
#[derive(Clone, Copy, Debug)]
pub(super) struct Key {
    /// The section that it belongs to.
    pub section: &'static str,
    /// Its name within the section.
    pub name: &'static str,
    /// The form of its values.
    pub form: Form,
    /// Unit of its values; empty for a value without a unit.
    pub unit: &'static str,
    /// Least and greatest value of a number.
    pub bounds: Option<(f64, f64)>,
    /// Its description.
    pub meaning: &'static str,
}

impl Key {
    /// `section.name`.
    pub(super) fn path(&self) -> String {
        format!("{}.{}", self.section, self.name)
    }
}

/// A section: its keys, beside the struct that holds their values.
#[derive(Clone, Copy, Debug)]
pub(super) struct Section {
    /// Its name.
    pub name: &'static str,
    /// Its description.
    pub about: &'static str,
    /// Its keys, in the order of the reference.
    pub keys: &'static [Key],
    /// Fixed values: they have bounds and a default, and only tests replace them.
    pub fixed: &'static [Key],
}

/// Defines a section: `field: type = default, "unit", least..=greatest;` under its doc comment. An
/// entry under `fixed` is a field of the struct that can't be configured; only tests replace its
/// default.
macro_rules! section {
    (
        $(#[doc = $about:literal])+
        $name:ident in $section:literal {
            $(
                $(#[doc = $meaning:literal])+
                $field:ident: $ty:ty = $default:expr, $unit:literal
                    $(, $least:literal ..= $greatest:literal)?;
            )+
            $( fixed {
                $(
                    $(#[doc = $fixed_meaning:literal])+
                    $fixed:ident: $fixed_ty:ty = $fixed_default:expr, $fixed_unit:literal
                        $(, $fixed_least:literal ..= $fixed_greatest:literal)?;
                )+
            } )?
        }
    ) => {
        $(#[doc = $about])+
        #[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
        #[serde(default, deny_unknown_fields)]
        pub struct $name {
            $( $(#[doc = $meaning])+ pub $field: $ty, )+
            $( $( $(#[doc = $fixed_meaning])+ #[serde(skip)] pub $fixed: $fixed_ty, )+ )?
        }

        impl Default for $name {
            fn default() -> Self {
                Self { $( $field: $default, )+ $( $( $fixed: $fixed_default, )+ )? }
            }
        }

        impl $name {
            /// The section, for checks and for the reference.
            pub(super) const SECTION: $crate::section::Section =
                $crate::section::Section {
                    name: $section,
                    about: concat!($($about),+),
                    keys: &[ $( section!(
                        @key $section $field $ty, $unit, $($least $greatest)?, $($meaning)+
                    ), )+ ],
                    fixed: &[ $( $( section!(
                        @key $section $fixed $fixed_ty, $fixed_unit,
                        $($fixed_least $fixed_greatest)?, $($fixed_meaning)+
                    ), )+ )? ],
                };
        }
    };
    (
        @key $section:literal $field:ident $ty:ty, $unit:literal,
        $($least:literal $greatest:literal)?, $($meaning:literal)+
    ) => {
        $crate::section::Key {
            section: $section,
            name: stringify!($field),
            form: <$ty as $crate::section::Setting>::FORM,
            unit: $unit,
            bounds: section!(@bounds $($least $greatest)?),
            meaning: concat!($($meaning),+),
        }
    };
    (@bounds) => { None };
    (@bounds $least:literal $greatest:literal) => { Some(($least as f64, $greatest as f64)) };
}

pub(super) use section;
