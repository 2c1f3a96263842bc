//! Sign-in that a script does, as the directives that do it here: for `weir migrate`.
//!
//! Known are the files of nginx-openid-connect (njs), whose settings are values of maps, and the
//! usual Lua of lua-resty-openidc and lua-resty-jwt, whose settings are fields of a table. What
//! cannot be read from them is a comment in the text.

use std::fmt::Write as _;

use conf::{Node, Pos, Tree};

/// Directives for a place of the configuration.
pub(crate) struct Written {
    pub(crate) at: Pos,
    /// What the script is.
    pub(crate) of: &'static str,
    pub(crate) text: String,
}

/// The directives for all scripts that are known.
pub(crate) fn written(tree: &Tree) -> Vec<Written> {
    let mut all: Vec<Written> = openid_connect(&tree.nodes).into_iter().collect();
    programs(&tree.nodes, &mut all);
    all
}

/// The settings of a provider.
#[derive(Default, Clone, PartialEq, Debug)]
struct Provider {
    issuer: String,
    /// The issuer is a guess.
    is_guessed: bool,
    /// The metadata's URL, if it does not follow from the issuer.
    config_url: String,
    client: String,
    secret: String,
    scope: String,
    extra: String,
    redirect: String,
    logout: String,
    post_logout: String,
    userinfo: bool,
}

impl Provider {
    fn write(&self, name: &str, out: &mut String) {
        let mut line = |name: &str, value: &str| {
            if !value.is_empty() {
                let _ = writeln!(out, "    {name} {};", word(value));
            }
        };
        let issuer = if self.issuer.is_empty() { "https://id.example.com" } else { &self.issuer };
        line("issuer", issuer);
        line("config_url", &self.config_url);
        line("client_id", &self.client);
        line("client_secret", &self.secret);
        line("redirect_uri", &self.redirect);
        line("extra_auth_args", &self.extra);
        line("logout_uri", &self.logout);
        line("post_logout_uri", &self.post_logout);
        if !self.scope.is_empty() {
            let _ = writeln!(out, "    scope {};", self.scope);
        }
        if self.userinfo {
            out.push_str("    userinfo on;\n");
        }
        let note = match (self.issuer.is_empty(), self.is_guessed) {
            (true, _) => "    # issuer: \"issuer\" in the provider's metadata\n",
            (_, true) => {
                "    # issuer is a guess: compare it with \"issuer\" in the provider's metadata\n"
            }
            _ => "",
        };
        *out = format!("oidc_provider {name} {{\n{out}{note}}}\n");
    }

    fn text(&self, name: &str) -> String {
        let mut out = String::new();
        self.write(name, &mut out);
        out
    }
}

/// A value as a word of the configuration.
fn word(value: &str) -> String {
    let is_plain = !value.is_empty()
        && !value.contains(|c: char| c.is_whitespace() || "\"'\\;{}#".contains(c));
    // A reference to the environment is no block.
    if is_plain || value.starts_with("${env:") && !value.contains([' ', '"']) {
        return value.to_owned();
    }
    format!("\"{}\"", value.replace('\\', "\\\\").replace('"', "\\\""))
}

/// The issuer of a provider with this authorization endpoint, and whether that is a guess.
fn issuer_of(endpoint: &str) -> (String, bool) {
    let origin = || {
        let path = endpoint.find("://").map_or(0, |at| at + 3);
        let len = endpoint[path..].find('/').map_or(endpoint.len(), |at| path + at);
        &endpoint[..len]
    };
    if let Some((realm, _)) = endpoint.split_once("/protocol/openid-connect/") {
        return (realm.to_owned(), false);
    }
    if origin() == "https://accounts.google.com" {
        return (origin().to_owned(), false);
    }
    if let Some(tenant) = endpoint.strip_suffix("/oauth2/v2.0/authorize") {
        return (format!("{tenant}/v2.0"), false);
    }
    if let Some(server) = endpoint.strip_suffix("/v1/authorize") {
        // Okta's: an authorization server of its own, or the organization's.
        let own = server.strip_suffix("/oauth2").unwrap_or(server);
        return (own.to_owned(), false);
    }
    (origin().to_owned(), !endpoint.is_empty())
}

// ---- nginx-openid-connect

/// A map of a setting: the values by key.
struct Setting<'t> {
    name: String,
    source: String,
    at: &'t Pos,
    values: Vec<(String, String)>,
}

fn settings<'t>(nodes: &'t [Node], all: &mut Vec<Setting<'t>>) {
    for node in nodes {
        let name = node.args.last().map(|word| word.lossy().into_owned()).unwrap_or_default();
        if node.name == *"map" && node.args.len() == 2 && name.starts_with("$oidc_") {
            let of = |entry: &Node| {
                let value = entry.args.first().map(|word| word.lossy().into_owned());
                (entry.name.lossy().into_owned(), value.unwrap_or_default())
            };
            all.push(Setting {
                name: name["$oidc_".len()..].to_owned(),
                source: node.args[0].lossy().into_owned(),
                at: &node.name.pos,
                values: node.children().iter().map(of).collect(),
            });
        } else {
            settings(node.children(), all);
        }
    }
}

fn openid_connect(nodes: &[Node]) -> Option<Written> {
    let mut all = Vec::new();
    settings(nodes, &mut all);
    let endpoint = all.iter().find(|setting| setting.name == "authz_endpoint")?;
    let (at, source) = (endpoint.at.clone(), endpoint.source.clone());
    let mut keys: Vec<&str> = Vec::new();
    for (key, _) in all.iter().flat_map(|setting| &setting.values) {
        if !keys.contains(&&**key) {
            keys.push(key);
        }
    }
    let value = |name: &str, key: &str| -> String {
        let values = all.iter().filter(|setting| setting.name == name).flat_map(|s| &s.values);
        let of = |wanted: &str| values.clone().find(|(of, _)| of == wanted).map(|(_, v)| v.clone());
        of(key).or_else(|| of("default")).unwrap_or_default()
    };
    let provider = |key: &str| {
        let (issuer, is_guessed) = issuer_of(&value("authz_endpoint", key));
        Provider {
            issuer,
            is_guessed,
            client: value("client", key),
            secret: value("client_secret", key),
            scope: value("scopes", key).replace('+', " "),
            extra: value("authz_extra_args", key),
            redirect: "/_codexch".to_owned(),
            logout: "/logout".to_owned(),
            // The page of the script itself goes with it.
            post_logout: Some(value("logout_redirect", key))
                .filter(|v| v != "/_logout")
                .unwrap_or_default(),
            ..Provider::default()
        }
    };
    let mut named: Vec<(String, Provider)> = Vec::new();
    let mut text = String::new();
    let mut by_key = String::new();
    for key in keys {
        let of_key = provider(key);
        let known = named.iter().find(|(_, other)| *other == of_key).map(|(name, _)| name.clone());
        let name = known.unwrap_or_else(|| {
            let name = if key == "default" { "main" } else { key };
            let name: String =
                name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
            text.push_str(&of_key.text(&name));
            named.push((name.clone(), of_key));
            name
        });
        let _ = writeln!(by_key, "    {} {name};", word(key));
    }
    let choice = match &named[..] {
        [(one, _)] => one.clone(),
        _ => {
            let _ = write!(text, "map {source} $provider {{\n{by_key}}}\n");
            "$provider".to_owned()
        }
    };
    text.push_str(&in_locations(nodes, &choice));
    Some(Written { at, of: "nginx-openid-connect", text })
}

/// The text for the locations that are protected.
fn in_locations(nodes: &[Node], choice: &str) -> String {
    let mut uses = Vec::new();
    protected(nodes, &mut uses);
    let places = match &uses[..] {
        [] => String::new(),
        all => format!(" of {}", all.join(", ")),
    };
    format!(
        "# in the locations{places}, for auth_jwt, auth_jwt_key_* and error_page 401:\n\
         auth_oidc {choice};\n\
         # and for $jwt_claim_NAME: $oidc_claim_NAME; for $access_token: $oidc_access_token;\n\
         # for $session_jwt: $oidc_id_token. The maps, keyvals, js_import and\n\
         # openid_connect.server_conf go.\n"
    )
}

/// The places of `auth_jwt … token=$session_jwt`.
fn protected(nodes: &[Node], all: &mut Vec<String>) {
    for node in nodes {
        let is_it = |word: &conf::Word| word.bytes() == b"token=$session_jwt";
        if node.name == *"auth_jwt" && node.args.iter().any(is_it) {
            all.push(node.name.pos.to_string());
        }
        protected(node.children(), all);
    }
}

// ---- Lua

fn programs(nodes: &[Node], all: &mut Vec<Written>) {
    for node in nodes {
        let name = node.name.lossy();
        let text = match (&node.args[..], &*name) {
            ([text], name) if name.ends_with("_by_lua_block") || name.ends_with("_by_lua") => {
                text.lossy().into_owned()
            }
            // One that cannot be read has nothing to show; weir -t refuses the directive anyway.
            ([file], name) if name.ends_with("_by_lua_file") => {
                std::fs::read_to_string(&*file.lossy()).unwrap_or_default()
            }
            _ => String::new(),
        };
        if let Some((of, text)) = program(&text) {
            all.push(Written { at: node.name.pos.clone(), of, text });
        }
        programs(node.children(), all);
    }
}

/// The directives for a program in Lua.
fn program(lua: &str) -> Option<(&'static str, String)> {
    let lua = without_comments(lua);
    if lua.contains("resty.openidc") && lua.contains("authenticate(") {
        return Some(("lua-resty-openidc", openidc(&lua)));
    }
    if lua.contains("resty.openidc") && lua.contains("bearer_jwt_verify(") {
        return Some(("lua-resty-openidc", bearer(&lua)));
    }
    (lua.contains("resty.jwt") && lua.contains(":verify(")).then(|| ("lua-resty-jwt", jwt(&lua)))
}

fn openidc(lua: &str) -> String {
    let of = |name: &str| field(lua, name);
    let discovery = of("discovery");
    let issuer = discovery.strip_suffix("/.well-known/openid-configuration");
    let provider = Provider {
        issuer: issuer.unwrap_or_default().to_owned(),
        config_url: if issuer.is_none() { discovery.clone() } else { String::new() },
        client: of("client_id"),
        secret: of("client_secret"),
        scope: of("scope"),
        redirect: [of("redirect_uri"), of("redirect_uri_path")].concat(),
        logout: of("logout_path"),
        post_logout: of("post_logout_redirect_uri"),
        userinfo: lua.contains("res.user"),
        ..Provider::default()
    };
    let mut text = provider.text("main");
    text.push_str("# in the location:\nauth_oidc main;\n");
    for (header, value) in headers(lua) {
        let _ = writeln!(text, "proxy_set_header {header} {value};");
    }
    text
}

/// The fields that the program sets for the server behind: name, and variable here.
fn headers(lua: &str) -> Vec<(String, String)> {
    let mut all = Vec::new();
    for part in lua.split("set_header(").skip(1) {
        let Some((header, rest)) = literal(part) else { continue };
        let value = rest.trim_start().trim_start_matches(',').trim_start();
        let value = &value[..value.find([')', '\n']).unwrap_or(value.len())];
        let name = |claim: &str| {
            let end = claim.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
            format!("$oidc_claim_{}", &claim[..end.unwrap_or(claim.len())])
        };
        let variable = if let Some((_, claim)) = value.split_once("res.id_token.") {
            name(claim)
        } else if let Some((_, claim)) = value.split_once("res.user.") {
            name(claim)
        } else if value.contains("res.access_token") {
            "$oidc_access_token".to_owned()
        } else {
            continue;
        };
        let variable = match value.contains("Bearer ") {
            true => format!("\"Bearer {variable}\""),
            false => variable,
        };
        all.push((header, variable));
    }
    all
}

fn bearer(lua: &str) -> String {
    let discovery = field(lua, "discovery");
    let issuer = discovery.strip_suffix("/.well-known/openid-configuration").unwrap_or("");
    let mut text = "auth_jwt \"api\";\n".to_owned();
    if discovery.is_empty() {
        text.push_str("# with the keys of the program, as a JSON Web Key Set:\n");
        text.push_str("auth_jwt_key_file keys.json;\n");
        return text;
    }
    text.push_str("auth_jwt_key_request /_keys;\nauth_jwt_key_cache 1h;\n");
    let _ = write!(
        text,
        "auth_jwt_require $is_issuer;\n# in http:\n\
         map $jwt_claim_iss $is_issuer {{ {} 1; default 0; }}\n\
         # in the server, with \"jwks_uri\" of {discovery}:\n\
         location = /_keys {{ internal; proxy_pass https://id.example.com/keys; }}\n",
        word(issuer)
    );
    text
}

fn jwt(lua: &str) -> String {
    let key = lua.split(":verify(").nth(1).and_then(|rest| literal(rest.trim_start()));
    let mut text = "auth_jwt \"api\";\nauth_jwt_key_file keys.json;\n".to_owned();
    match key {
        Some((secret, _)) if !secret.contains("BEGIN") => {
            let mut encoded = Vec::new();
            base::base64::encode_url(secret.as_bytes(), &mut encoded);
            let encoded = String::from_utf8_lossy(&encoded);
            let _ = write!(
                text,
                "# keys.json, readable by nobody else:\n\
                 # {{\"keys\":[{{\"kty\":\"oct\",\"k\":\"{encoded}\"}}]}}\n"
            );
            if secret.len() < 32 {
                text.push_str("# HS256 needs a secret of 32 bytes: this one is too short\n");
            }
        }
        _ => text.push_str("# keys.json: the key of the program, as a JSON Web Key Set\n"),
    }
    text
}

/// A program without its comments. Texts with two hyphens are rare in what is looked for here.
fn without_comments(lua: &str) -> String {
    lua.lines().map(|line| line.split("--").next().unwrap_or_default()).fold(
        String::new(),
        |mut all, line| {
            all.push_str(line);
            all.push('\n');
            all
        },
    )
}

/// The value of a field of a table: a text, or one of the environment.
fn field(lua: &str, name: &str) -> String {
    for (at, _) in lua.match_indices(name) {
        let is_whole =
            !lua[..at].ends_with(|c: char| c.is_ascii_alphanumeric() || "_.".contains(c));
        let rest = lua[at + name.len()..].trim_start();
        let Some(value) = rest.strip_prefix('=').filter(|rest| is_whole && !rest.starts_with('='))
        else {
            continue;
        };
        let value = value.trim_start();
        if let Some((text, _)) = literal(value) {
            return text;
        }
        let variable = value.strip_prefix("os.getenv(").and_then(|rest| literal(rest.trim_start()));
        if let Some((variable, _)) = variable {
            return format!("${{env:{variable}}}");
        }
    }
    String::new()
}

/// The text in quotes that stands at the beginning, and what follows.
fn literal(text: &str) -> Option<(String, &str)> {
    let text = text.trim_start();
    let quote = text.chars().next().filter(|c| matches!(c, '"' | '\''))?;
    let mut value = String::new();
    let mut chars = text[1..].char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => value.extend(chars.next().map(|(_, c)| c)),
            c if c == quote => return Some((value, &text[1 + at + 1..])),
            c => value.push(c),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use bytes::Bytes;
    use conf::parse::{Options, parse_bytes};

    use super::*;

    fn of(text: &str) -> Vec<(u32, &'static str, String)> {
        let text = Bytes::copy_from_slice(text.as_bytes());
        let tree = parse_bytes(Path::new("nginx.conf"), text, &Options::default()).expect("valid");
        written(&tree).into_iter().map(|w| (w.at.line, w.of, w.text)).collect()
    }

    #[test]
    fn maps_of_njs_become_providers() {
        let maps = r#"
            map $host $oidc_authz_endpoint {
                default "https://id.test/realms/a/protocol/openid-connect/auth";
                b.test "https://login.test/tenant/oauth2/v2.0/authorize";
            }
            map $host $oidc_client { default me; b.test you; }
            map $host $oidc_client_secret { default "a;b"; }
            map $host $oidc_scopes { default "openid+email"; }
            map $host $oidc_logout_redirect { default "/_logout"; b.test /bye; }
            server { location / { auth_jwt "" token=$session_jwt; } }
        "#;
        let [(line, name, text)] = &of(maps)[..] else { panic!("one") };
        assert_eq!((*line, *name), (2, "nginx-openid-connect"));
        let want = [
            "oidc_provider main {\n    issuer https://id.test/realms/a;\n    client_id me;\n",
            "    client_secret \"a;b\";\n    redirect_uri /_codexch;\n    logout_uri /logout;\n",
            "    scope openid email;\n}\n",
            "oidc_provider b_test {\n    issuer https://login.test/tenant/v2.0;\n",
            "    client_id you;\n    client_secret \"a;b\";\n    redirect_uri /_codexch;\n",
            "    logout_uri /logout;\n    post_logout_uri /bye;\n    scope openid email;\n}\n",
            "map $host $provider {\n    default main;\n    b.test b_test;\n}\n",
            "# in the locations of nginx.conf:10, for auth_jwt, ",
        ];
        let want = &want.concat();
        assert!(text.starts_with(want), "{text}");
        assert!(text.contains("\nauth_oidc $provider;\n"), "{text}");
    }

    #[test]
    fn issuers_follow_from_endpoints() {
        for (endpoint, issuer, guess) in [
            (
                "https://a.test/auth/realms/m/protocol/openid-connect/auth",
                "https://a.test/auth/realms/m",
                false,
            ),
            ("https://accounts.google.com/o/oauth2/v2/auth", "https://accounts.google.com", false),
            ("https://a.okta.com/oauth2/v1/authorize", "https://a.okta.com", false),
            (
                "https://a.okta.com/oauth2/default/v1/authorize",
                "https://a.okta.com/oauth2/default",
                false,
            ),
            ("https://a.test/authorize", "https://a.test", true),
            ("https://a.test", "https://a.test", true),
            ("", "", false),
        ] {
            assert_eq!(issuer_of(endpoint), (issuer.to_owned(), guess), "{endpoint}");
        }
    }

    #[test]
    fn programs_in_lua_become_directives() {
        let all = of(r#"
            location / { access_by_lua_block {
                local opts = {
                    redirect_uri_path = "/cb", -- scope = "none"
                    discovery = "https://id.test/.well-known/openid-configuration",
                    client_id = os.getenv("ID"), ['client_secret'] = 'x',
                    client_secret = "s 1",
                    scope = "openid email",
                }
                local res, err = require("resty.openidc").authenticate(opts)
                ngx.req.set_header("X-USER", res.id_token.sub)
                ngx.req.set_header("X-Mail", res.user.email)
                ngx.req.set_header("Authorization", "Bearer " .. res.access_token)
                ngx.req.set_header("X-None", other)
            } }
            location /api { access_by_lua_block {
                local jwt = require "resty.jwt"
                local obj = jwt:verify("lua-resty-jwt", token)
            } }
            location /bearer { access_by_lua_block {
                local o = { discovery = "https://id.test/.well-known/openid-configuration" }
                local r, e = require("resty.openidc").bearer_jwt_verify(o)
            } }
            location /other { content_by_lua_block { ngx.say("resty.openidc") } }
        "#);
        let names: Vec<_> = all.iter().map(|(line, name, _)| (*line, *name)).collect();
        let openidc = "lua-resty-openidc";
        assert_eq!(names, [(2, openidc), (16, "lua-resty-jwt"), (20, openidc)]);
        let want = [
            "oidc_provider main {\n    issuer https://id.test;\n    client_id ${env:ID};\n",
            "    client_secret \"s 1\";\n    redirect_uri /cb;\n    scope openid email;\n",
            "    userinfo on;\n}\n# in the location:\nauth_oidc main;\n",
            "proxy_set_header X-USER $oidc_claim_sub;\n",
            "proxy_set_header X-Mail $oidc_claim_email;\n",
            "proxy_set_header Authorization \"Bearer $oidc_access_token\";\n",
        ];
        let want = want.concat();
        assert_eq!(all[0].2, want);
        assert!(all[1].2.contains("\"k\":\"bHVhLXJlc3R5LWp3dA\""), "{}", all[1].2);
        assert!(all[1].2.contains("too short"), "{}", all[1].2);
        assert!(
            all[2].2.contains("map $jwt_claim_iss $is_issuer { https://id.test 1; default 0; }")
        );
    }

    #[test]
    fn odd_texts_are_no_trouble() {
        for lua in ["x = \"", "x = 'a\\", "x == \"a\"", "yx = \"a\"", "x =", "x", "", "x = 'é\\é'"]
        {
            let _ = field(lua, "x");
        }
        assert_eq!(field("x == \"a\" y.x = 'b' x = 'c'", "x"), "c");
        assert_eq!(literal("'a\\'b' rest"), Some(("a'b".to_owned(), " rest")));
    }
}
