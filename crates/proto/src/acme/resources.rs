//! The server's resources: directory, account, order, authorization, challenge.

use super::json::Object;
use super::{Malformed, Problem};

/// The addresses of the server's functions (RFC 8555 section 7.1.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Directory {
    /// Gives nonces.
    pub new_nonce: String,
    /// Makes accounts.
    pub new_account: String,
    /// Makes orders.
    pub new_order: String,
    /// Changes the key of an account.
    pub key_change: Option<String>,
    /// Gives renewal information (RFC 9773).
    pub renewal_info: Option<String>,
    /// The URL of the terms of service.
    pub terms_of_service: Option<String>,
    /// Accounts need a binding to one made elsewhere.
    pub needs_external_account: bool,
    /// The names of profiles.
    pub profiles: Vec<String>,
}

impl Directory {
    /// Reads it.
    ///
    /// # Errors
    /// It is none, or lacks an address.
    pub fn parse(body: &[u8]) -> Result<Directory, Malformed> {
        const WHAT: &str = "no directory";
        let o = Object::parse(body)?;
        let meta = o.object("meta");
        let profiles = meta.as_ref().and_then(|meta| meta.object("profiles"));
        Ok(Directory {
            new_nonce: o.needed("newNonce", WHAT)?,
            new_account: o.needed("newAccount", WHAT)?,
            new_order: o.needed("newOrder", WHAT)?,
            key_change: o.text("keyChange").map(str::to_owned),
            renewal_info: o.text("renewalInfo").map(str::to_owned),
            terms_of_service: meta
                .as_ref()
                .and_then(|meta| meta.text("termsOfService").map(str::to_owned)),
            needs_external_account: meta
                .as_ref()
                .is_some_and(|meta| meta.flag("externalAccountRequired")),
            profiles: profiles
                .map(|profiles| profiles.names().map(str::to_owned).collect())
                .unwrap_or_default(),
        })
    }
}

/// An account (section 7.1.2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    /// It may be used.
    pub is_valid: bool,
    /// The list of its orders, where the server keeps one.
    pub orders: Option<String>,
}

impl Account {
    /// Reads the list of its orders.
    ///
    /// # Errors
    /// It is none.
    pub fn parse_orders(body: &[u8]) -> Result<Vec<String>, Malformed> {
        Ok(Object::parse(body)?.texts("orders"))
    }

    /// Reads it.
    ///
    /// # Errors
    /// It is none.
    pub fn parse(body: &[u8]) -> Result<Account, Malformed> {
        let o = Object::parse(body)?;
        let status = o.needed("status", "no account")?;
        Ok(Account { is_valid: status == "valid", orders: o.text("orders").map(str::to_owned) })
    }
}

/// The state of an order (section 7.1.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OrderStatus {
    /// Authorizations are missing.
    Pending,
    /// It may be finalized.
    Ready,
    /// The certificate is being made.
    Processing,
    /// The certificate is there.
    Valid,
    /// It has failed.
    Invalid,
}

/// A request for a certificate, and how far it is (RFC 8555 section 7.1.3).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    /// Its state.
    pub status: OrderStatus,
    /// The addresses of its authorizations.
    pub authorizations: Vec<String>,
    /// Where it is finalized.
    pub finalize: String,
    /// The address of the certificate.
    pub certificate: Option<String>,
    /// Why it failed.
    pub error: Option<Problem>,
    /// The names that it is for, as the server has them.
    pub names: Vec<String>,
}

/// The next step of an order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OrderStep {
    /// Answer the challenges of these authorizations.
    Authorize(Vec<String>),
    /// Send the certificate request to this address.
    Finalize(String),
    /// Look again.
    Wait,
    /// Get the certificate from this address.
    Fetch(String),
    /// It has failed.
    Failed(Option<Problem>),
}

impl Order {
    /// Reads it.
    ///
    /// # Errors
    /// It is none.
    pub fn parse(body: &[u8]) -> Result<Order, Malformed> {
        const WHAT: &str = "no order";
        let o = Object::parse(body)?;
        let status = match o.text("status") {
            Some("pending") => OrderStatus::Pending,
            Some("ready") => OrderStatus::Ready,
            Some("processing") => OrderStatus::Processing,
            Some("valid") => OrderStatus::Valid,
            Some("invalid") => OrderStatus::Invalid,
            _ => return Err(Malformed("no state of an order")),
        };
        let names = o.objects("identifiers").into_iter();
        Ok(Order {
            status,
            authorizations: o.texts("authorizations"),
            finalize: o.needed("finalize", WHAT)?,
            certificate: o.text("certificate").map(str::to_owned),
            error: o.object("error").map(|error| Problem::of(0, &error)),
            names: names.filter_map(|name| name.text("value").map(str::to_owned)).collect(),
        })
    }

    /// The next step, by its state.
    ///
    /// # Errors
    /// It is valid and has no certificate.
    pub fn step(&self) -> Result<OrderStep, Malformed> {
        Ok(match self.status {
            OrderStatus::Pending => OrderStep::Authorize(self.authorizations.clone()),
            OrderStatus::Ready => OrderStep::Finalize(self.finalize.clone()),
            OrderStatus::Processing => OrderStep::Wait,
            OrderStatus::Valid => match &self.certificate {
                Some(url) => OrderStep::Fetch(url.clone()),
                None => return Err(Malformed("a valid order without a certificate")),
            },
            OrderStatus::Invalid => OrderStep::Failed(self.error.clone()),
        })
    }
}

/// The state of an authorization (section 7.1.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuthorizationStatus {
    /// A challenge is to be answered.
    Pending,
    /// It holds.
    Valid,
    /// It does not, for one of several reasons.
    Invalid,
}

/// An authorization for one identifier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Authorization {
    /// Its state.
    pub status: AuthorizationStatus,
    /// The name or address, without the asterisk of a wildcard.
    pub name: String,
    /// It is for all names below.
    pub is_wildcard: bool,
    /// The ways to prove it.
    pub challenges: Vec<Challenge>,
}

impl Authorization {
    /// Reads it.
    ///
    /// # Errors
    /// It is none.
    pub fn parse(body: &[u8]) -> Result<Authorization, Malformed> {
        const WHAT: &str = "no authorization";
        let o = Object::parse(body)?;
        let status = match o.text("status") {
            Some("pending") => AuthorizationStatus::Pending,
            Some("valid") => AuthorizationStatus::Valid,
            Some("invalid" | "deactivated" | "expired" | "revoked") => AuthorizationStatus::Invalid,
            _ => return Err(Malformed("no state of an authorization")),
        };
        let identifier = o.object("identifier").ok_or(Malformed(WHAT))?;
        Ok(Authorization {
            status,
            name: identifier.needed("value", WHAT)?,
            is_wildcard: o.flag("wildcard"),
            challenges: o.objects("challenges").iter().filter_map(Challenge::of).collect(),
        })
    }

    /// Its challenge of a type.
    pub fn challenge(&self, kind: &str) -> Option<&Challenge> {
        self.challenges.iter().find(|challenge| challenge.kind == kind)
    }
}

/// The state of a challenge (section 7.1.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChallengeStatus {
    /// The server has not been asked to look.
    Pending,
    /// It looks.
    Processing,
    /// It was answered well.
    Valid,
    /// It was not.
    Invalid,
}

/// One way to prove control of a name (RFC 8555 section 7.1.5).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Challenge {
    /// The type (`http-01`).
    pub kind: String,
    /// The address.
    pub url: String,
    /// The random text; of characters for URLs alone, as it becomes part of a path and of a file's
    /// name.
    pub token: String,
    /// Its state.
    pub status: ChallengeStatus,
    /// Why it failed.
    pub error: Option<Problem>,
}

impl Challenge {
    /// Reads an answer that is one.
    ///
    /// # Errors
    /// It is none.
    pub fn parse(body: &[u8]) -> Result<Challenge, Malformed> {
        Challenge::of(&Object::parse(body)?).ok_or(Malformed("no challenge"))
    }

    fn of(o: &Object) -> Option<Challenge> {
        let status = match o.text("status")? {
            "pending" => ChallengeStatus::Pending,
            "processing" => ChallengeStatus::Processing,
            "valid" => ChallengeStatus::Valid,
            "invalid" => ChallengeStatus::Invalid,
            _ => return None,
        };
        let token = o.text("token").unwrap_or_default();
        let of_token = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
        if token.len() > TOKEN_MAX || !token.bytes().all(of_token) {
            return None;
        }
        Some(Challenge {
            kind: o.text("type")?.to_owned(),
            url: o.text("url")?.to_owned(),
            token: token.to_owned(),
            status,
            error: o.object("error").map(|error| Problem::of(0, &error)),
        })
    }
}

/// The longest token: servers use 43 characters, for 256 bits.
const TOKEN_MAX: usize = 256;
