// The certified provider of the npm package oidc-provider:
//     node provider.mjs NODE_MODULES PORT ISSUER SITE METHOD
// It listens in plain HTTP on 127.0.0.1:PORT; the server under test puts TLS in front of it.

import { pathToFileURL } from 'node:url';
import { join } from 'node:path';

const [modules, port, issuer, site, method] = process.argv.slice(2);
const entry = pathToFileURL(join(modules, 'oidc-provider', 'lib', 'index.js'));
const { default: Provider } = await import(entry);

// Its notices; the test reads one line of the other stream.
console.info = console.log = console.error;

const provider = new Provider(issuer, {
  clients: [{
    client_id: 'me',
    client_secret: 'secret-canary',
    token_endpoint_auth_method: method,
    grant_types: ['authorization_code', 'refresh_token'],
    redirect_uris: ['http://localhost/oidc_callback'],
    post_logout_redirect_uris: ['http://localhost/bye.txt'],
    backchannel_logout_uri: `${site}/back`,
    backchannel_logout_session_required: true,
  }],
  clientAuthMethods: [method],
  cookies: { keys: ['a key of a test'] },
  claims: { openid: ['sub'], email: ['email'] },
  features: { backchannelLogout: { enabled: true } },
  findAccount: (ctx, id) => ({
    accountId: id,
    claims: async () => ({ sub: id, email: `${id}@b.test` }),
  }),
  // It does not call loopback addresses otherwise.
  fetch: (url, options) => fetch(url, { ...options, dispatcher: undefined }),
  issueRefreshToken: async () => true,
  rotateRefreshToken: true,
  // Short enough that a session begins with a token that wants to be refreshed.
  ttl: { AccessToken: 1 },
});
provider.proxy = true;
provider.on('server_error', (ctx, e) => console.error(e));
provider.on('backchannel.error', (ctx, e) => console.error(e));
provider.listen(Number(port), '127.0.0.1', () => process.stdout.write('ready\n'));
