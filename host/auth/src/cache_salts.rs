//! Salts of engines' prefix caches, one per tenant: prompts of two tenants share no cache, so that
//! the time to a first token reveals nothing of what others have sent.

use super::secret::{NoRandomness, hex};
use ring::hmac::{Context, HMAC_SHA256, Key, sign};
use ring::rand::SystemRandom;
use treadle_model::Tenant;

/// Bytes of the HMAC in a salt; engines take 1,024 characters at most.
const SALT_BYTES: usize = 16;

/// Computes salts.
pub struct CacheSalts(Key);

impl CacheSalts {
    /// Keyed by the daemons' shared secret, so that all compute the same salts, or by a random key
    /// if that is empty.
    ///
    /// # Errors
    /// The operating system provides no random numbers.
    pub fn new(shared: &str) -> Result<Self, NoRandomness> {
        if !shared.is_empty() {
            return Ok(Self(Key::new(HMAC_SHA256, shared.as_bytes())));
        }
        let key = Key::generate(HMAC_SHA256, &SystemRandom::new());
        key.map(Self).map_err(|_| NoRandomness)
    }

    /// The salt of a tenant's prompts, in hexadecimal digits. `own` are the client's own salts,
    /// which separate for example versions of the weights.
    pub fn of<'p>(&self, tenant: &Tenant, own: impl Iterator<Item = &'p [u8]>) -> String {
        let mut context = Context::with_key(&self.0);
        context.update(b"treadle cache salt\n");
        // No name has a control character.
        context.update(tenant.name().as_bytes());
        for part in own {
            context.update(b"\n");
            context.update(part);
        }
        hex(&context.sign().as_ref()[..SALT_BYTES])
    }

    /// A secret number that all daemons with the same key compute.
    pub fn number(&self, of: &str) -> u64 {
        let tag = sign(&self.0, format!("treadle number\n{of}").as_bytes());
        let bytes = tag.as_ref().iter().take(8);
        bytes.fold(0, |number, byte| number << 8 | u64::from(*byte))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_salt_is_of_one_tenant_one_key_and_one_wish() {
        let of = |key: &str, tenant: &str, own: &[&str]| {
            let salts = CacheSalts::new(key).unwrap();
            let own = own.iter().map(|part| part.as_bytes());
            salts.of(&Tenant::new(tenant), own)
        };
        let one = of("k", "acme", &[]);
        assert_eq!(one.len(), 2 * SALT_BYTES);
        assert_eq!(one, of("k", "acme", &[]));
        let others = [
            of("k", "beta", &[]),
            of("l", "acme", &[]),
            of("k", "acme", &["v1"]),
            of("k", "acme", &["v1", "x"]),
            of("", "acme", &[]),
            of("", "acme", &[]),
        ];
        let all: std::collections::BTreeSet<_> = others.iter().chain([&one]).collect();
        assert_eq!(all.len(), 7, "{all:?}");
        assert_ne!(
            CacheSalts::new("k").unwrap().number("a"),
            CacheSalts::new("l").unwrap().number("a")
        );
    }
}
