// The functions that scripts.conf names.

function language(r) {
    const wanted = r.headersIn['Accept-Language'] ?? '';
    return wanted.startsWith('de') ? 'de' : 'en';
}

async function authorize(r) {
    const reply = await ngx.fetch('http://127.0.0.1:9000/check', {
        headers: { Authorization: r.headersIn.Authorization ?? '' },
    });
    if (reply.status !== 200) {
        r.return(401);
        return;
    }
    r.variables.user = await reply.text();
}

async function dashboard(r) {
    const parts = await Promise.all(['/parts/news', '/parts/weather'].map(uri => r.subrequest(uri)));
    r.headersOut['Content-Type'] = 'application/json';
    r.return(200, JSON.stringify(parts.map(part => ({
        status: part.status, text: part.responseText,
    }))));
}

function count(r) {
    r.return(200, `${ngx.shared.visits.incr(r.remoteAddress, 1)}\n`);
}

function hideServer(r) {
    delete r.headersOut['X-Powered-By'];
    delete r.headersOut['Content-Length'];
}

function shout(r, data, flags) {
    r.sendBuffer(data.toUpperCase(), flags);
}

function refresh() {
    ngx.shared.settings.set('refreshed', new Date().toISOString());
}

export default { language, authorize, dashboard, count, hideServer, shout, refresh };
