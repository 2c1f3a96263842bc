// A server of S3 with the files of a folder as objects of the bucket `bucket-1`, which is the first
// part of the host's name, by the npm package s3rver. Signatures are compared with those that the
// packages aws4 and aws-sign2 make of the same request; a request with another one, or without, is
// refused. Prints a line for each request: its status, the kind of its signature, method and URL.
//
// usage: node s3.mjs MODULES PORT FOLDER STORE

import { createRequire } from 'node:module';
import { createReadStream, readdirSync } from 'node:fs';
import { join, relative } from 'node:path';

const [modules, port, folder, store] = process.argv.slice(2);
const require = createRequire(join(modules, 'x.js'));
const S3rver = require('s3rver');
const S3Object = require('s3rver/lib/models/object');
const aws4 = require('aws4');
const awsSign2 = require('aws-sign2');

const key = 'S3RVER';
const secret = 'S3RVER';

// The value of `Authorization` that a request of version 4 should have; fields are those that it
// says are signed.
function version4({ method, url, headers }) {
    const names = /SignedHeaders=([^,]*)/.exec(headers.authorization)?.[1].split(';') ?? [];
    const signed = aws4.sign(
        { method, path: url, host: headers.host, service: 's3', region: 'us-east-1',
            headers: Object.fromEntries(names.map(name => [name, headers[name]])) },
        { accessKeyId: key, secretAccessKey: secret });
    return signed.headers.Authorization;
}

// The same for version 2.
function version2({ method, url, headers }) {
    return awsSign2({ key, secret, verb: method, md5: '', contentType: '',
        amazonHeaders: awsSign2.canonicalizeHeaders(headers), date: new Date(headers.date),
        resource: `/bucket-1${url.split('?')[0]}` });
}

// The signature in a value, behind the last `=` or `:`.
function signature(authorization) {
    return /(?:Signature=|:)([^:]*)$/.exec(authorization)?.[1] ?? 'none';
}

const server = new S3rver({
    address: '127.0.0.1',
    port: Number(port),
    directory: store,
    silent: true,
    // It knows no version 4, and of version 2 not all.
    allowMismatchedSignatures: true,
    vhostBuckets: false,
    configureBuckets: [{ name: 'bucket-1', configs: [] }],
});
server.middleware.unshift(async (ctx, next) => {
    const given = ctx.get('authorization');
    const kind = given.split(' ')[0];
    const right = kind === 'AWS' ? version2(ctx.req)
        : kind === 'AWS4-HMAC-SHA256' ? version4(ctx.req) : undefined;
    const isRight = right !== undefined && signature(right) === signature(given);
    if (isRight && ctx.get('host').startsWith('bucket-1.')) {
        ctx.url = `/bucket-1${ctx.url}`;
        await next();
    } else {
        ctx.status = 403;
    }
    console.log(`${ctx.status} ${kind} ${ctx.method} ${ctx.url}`);
});
await server.run();

for (const entry of readdirSync(folder, { recursive: true, withFileTypes: true })) {
    if (entry.isFile()) {
        const path = join(entry.parentPath ?? entry.path, entry.name);
        const metadata = { 'content-type': 'binary/octet-stream' };
        const key = relative(folder, path);
        await server.store.putObject(
            new S3Object('bucket-1', key, createReadStream(path), metadata));
    }
}
console.log('ready');
