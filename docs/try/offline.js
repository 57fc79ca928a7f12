// Keeps the page for when there is no network: what was fetched once is answered from the cache then. With a network the
// newest files are used.
const CACHE = "flipbit";
const FILES = [
  "./", "index.html", "style.css", "icon.svg", "core/flipbit.js", "core/flipbit.wasm", "nets/digits.fbit", "nets/cifar10.fbit", "nets/digits.bin",
  ...["main", "worker", "engine", "elements", "nets", "lessons", "try", "pad", "examples", "answer", "numbers", "thinned", "strokes", "pictures", "maps", "inside", "teach", "bits", "chart",
    "toy", "dial", "bench", "image", "connected", "listening", "guarding", "wav", "resample", "microphone", "microphone_worklet",
    "link/frames", "link/connection", "link/device", "link/listener", "link/guard", "link/refusals", "link/refused_learning"].map((name) => `js/${name}.js`),
];

addEventListener("install", (event) => {
  skipWaiting();
  event.waitUntil(caches.open(CACHE).then((cache) => cache.addAll(FILES)));
});

addEventListener("activate", (event) => event.waitUntil(clients.claim()));

addEventListener("fetch", (event) => {
  const { request } = event;
  if (request.method !== "GET" || new URL(request.url).origin !== location.origin) return;
  event.respondWith(newest(request));
});

async function newest(request) {
  try {
    const answer = await fetch(request);
    if (answer.ok && !new URL(request.url).pathname.includes("/reports/")) await keep(request, answer.clone());
    return answer;
  } catch (error) {
    const kept = await caches.match(request, { cacheName: CACHE, ignoreSearch: true });
    if (kept) return kept;
    throw error;
  }
}

async function keep(request, answer) {
  try {
    await (await caches.open(CACHE)).put(request, answer);
  } catch (error) {
    console.info("not kept for offline use:", error.message); // no room left: the page itself lacks nothing
  }
}
