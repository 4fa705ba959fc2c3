// The official OpenAI client against a running server: TESSERA_URL=http://127.0.0.1:8080 node --test openai.test.mjs
import assert from 'node:assert/strict';
import { test } from 'node:test';
import OpenAI from 'openai';

const url = process.env.TESSERA_URL;
if (!url) throw new Error('TESSERA_URL is not set; wanted the base URL of a running server, without /v1');
const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: process.env.TESSERA_API_KEY ?? 'none', maxRetries: 0 });
const model = (await client.models.list()).data[0].id;
const messages = [{ role: 'user', content: 'Tell me a story about a dog.' }];
const chat = (options) => client.chat.completions.create({ model, messages, max_tokens: 24, ...options });
const complete = (options) =>
  client.completions.create({ model, prompt: 'Once upon a time', max_tokens: 24, ...options });

test('the model is listed and can be fetched by its id', async () => {
  const found = await client.models.retrieve(model);
  assert.equal(found.id, model);
  assert.equal(found.object, 'model');
});

test('an unknown model is a NotFoundError with code model_not_found', async () => {
  for (const ask of [() => client.models.retrieve('no/such'), () => chat({ model: 'no-such' })])
    await assert.rejects(ask, (error) => error instanceof OpenAI.NotFoundError && error.code === 'model_not_found');
});

test('a completion has text, usage and a reason to finish', async () => {
  const answer = await complete({ temperature: 0 });
  assert.equal(answer.object, 'text_completion');
  assert.ok(answer.choices[0].text.length > 0);
  assert.ok(['stop', 'length'].includes(answer.choices[0].finish_reason));
  assert.ok(answer.usage.completion_tokens >= 1 && answer.usage.completion_tokens <= 24);
  assert.equal(answer.usage.total_tokens, answer.usage.prompt_tokens + answer.usage.completion_tokens);
});

test('echo puts the prompt before the answer', async () => {
  const plain = await complete({ temperature: 0 });
  const echoed = await complete({ temperature: 0, echo: true });
  assert.equal(echoed.choices[0].text, 'Once upon a time' + plain.choices[0].text);
});

test('a chat answer is an assistant message with a fingerprint', async () => {
  const answer = await chat({ seed: 1 });
  assert.match(answer.id, /^chatcmpl-/);
  assert.match(answer.system_fingerprint, /^fp_[0-9a-f]{12}$/);
  assert.equal(answer.choices[0].message.role, 'assistant');
});

test('the same seed gives the same answer, whole or streamed, alone or in company', async () => {
  const options = { seed: 7, temperature: 1 };
  const whole = await chat(options);
  const [again, streams] = await Promise.all([
    chat(options),
    Promise.all([1, 2, 3].map(async () => {
      let text = '', finish = null, role = null;
      for await (const chunk of await chat({ ...options, stream: true })) {
        text += chunk.choices[0]?.delta.content ?? '';
        role ??= chunk.choices[0]?.delta.role;
        finish = chunk.choices[0]?.finish_reason ?? finish;
      }
      return { text, finish, role };
    })),
    ...[8, 9, 10].map((seed) => chat({ seed })),
  ]);
  assert.equal(again.choices[0].message.content, whole.choices[0].message.content);
  for (const stream of streams) {
    assert.equal(stream.text, whole.choices[0].message.content);
    assert.equal(stream.finish, whole.choices[0].finish_reason);
    assert.equal(stream.role, 'assistant');
  }
});

test('a streamed completion equals the whole one', async () => {
  const whole = await complete({ seed: 3 });
  let text = '';
  for await (const chunk of await complete({ seed: 3, stream: true })) text += chunk.choices[0]?.text ?? '';
  assert.equal(text, whole.choices[0].text);
});

test('the last chunk carries usage when it is asked for', async () => {
  let last;
  for await (const chunk of await chat({ seed: 1, stream: true, stream_options: { include_usage: true } })) last = chunk;
  const whole = await chat({ seed: 1 });
  assert.deepEqual(last.choices, []);
  assert.equal(last.usage.completion_tokens, whole.usage.completion_tokens);
  assert.equal(last.usage.prompt_tokens, whole.usage.prompt_tokens);
});

test('a stop string ends the answer and is not part of it', async () => {
  const whole = (await complete({ temperature: 0 })).choices[0].text;
  const stop = whole.slice(5, 8);
  const cut = await complete({ temperature: 0, stop });
  assert.equal(cut.choices[0].text, whole.slice(0, whole.indexOf(stop)));
  assert.equal(cut.choices[0].finish_reason, 'stop');
});

test('n choices differ by index and are reproducible', async () => {
  const first = await complete({ n: 3, seed: 5 });
  const second = await complete({ n: 3, seed: 5 });
  assert.deepEqual(first.choices.map((choice) => choice.index), [0, 1, 2]);
  assert.deepEqual(first.choices.map((choice) => choice.text), second.choices.map((choice) => choice.text));
});

test('logprobs name every token, and the greedy token is the best', async () => {
  const answer = await chat({ temperature: 0, logprobs: true, top_logprobs: 2 });
  const content = answer.choices[0].logprobs.content;
  assert.ok(content.length > 0);
  for (const token of content) {
    assert.ok(token.logprob <= 0);
    assert.equal(token.top_logprobs.length, 2);
    assert.equal(token.logprob, token.top_logprobs[0].logprob);
  }
  const completion = await complete({ temperature: 0, logprobs: 1 });
  const logprobs = completion.choices[0].logprobs;
  assert.equal(logprobs.tokens.length, logprobs.token_logprobs.length);
  assert.equal(logprobs.text_offset[0], 0);
});

test('an aborted stream stops, and the server serves on', async () => {
  const stream = await chat({ stream: true, max_tokens: 200, ignore_eos: true });
  for await (const chunk of stream) {
    if (chunk.choices[0]?.delta.content) break;
  }
  stream.controller.abort();
  const aborter = new AbortController();
  const pending = client.chat.completions.create({ model, messages, max_tokens: 200, ignore_eos: true },
                                                 { signal: aborter.signal });
  setTimeout(() => aborter.abort(), 30);
  await assert.rejects(pending, OpenAI.APIUserAbortError);
  assert.ok((await chat({ max_tokens: 2 })).choices.length === 1);
});

test('bad parameters are BadRequestErrors that name the parameter', async () => {
  const cases = [
    [{ temperature: 'hot' }, 'temperature'], [{ top_p: 2 }, 'top_p'], [{ n: 0 }, 'n'], [{ max_tokens: -1 }, 'max_tokens'],
    [{ messages: [] }, 'messages'], [{ messages: [{ role: 'x', content: 'y' }] }, 'messages[0].role'],
    [{ tools: [{ type: 'function', function: { name: 'f' } }] }, 'tools'],
    [{ response_format: { type: 'json_object' } }, 'response_format'], [{ stop: Array(17).fill('a') }, 'stop'],
  ];
  for (const [options, param] of cases)
    await assert.rejects(() => chat(options), (error) => {
      assert.ok(error instanceof OpenAI.BadRequestError, `${JSON.stringify(options)}: ${error}`);
      assert.equal(error.type, 'invalid_request_error');
      assert.equal(error.param, param);
      return true;
    });
});

test('a prompt beyond the context is context_length_exceeded, streamed or not', async () => {
  for (const stream of [false, true])
    await assert.rejects(() => chat({ max_tokens: 1000000, stream }),
                         (error) => error.status === 400 && error.code === 'context_length_exceeded');
});

test('unknown paths, wrong methods and broken bodies are errors in the same shape', async () => {
  const ask = async (path, options) => {
    const answer = await fetch(url + path, options);
    return [answer.status, (await answer.json()).error.type];
  };
  assert.deepEqual(await ask('/v1/nothing'), [404, 'invalid_request_error']);
  assert.deepEqual(await ask('/nothing'), [404, 'invalid_request_error']);
  assert.deepEqual(await ask('/v1/completions'), [405, 'invalid_request_error']);
  assert.deepEqual(await ask('/v1/completions', { method: 'POST', body: '{' }), [400, 'invalid_request_error']);
});

test('health and metrics answer', async () => {
  assert.deepEqual(await (await fetch(`${url}/health`)).json(), { status: 'ok' });
  assert.match(await (await fetch(`${url}/metrics`)).text(), /^tessera_/m);
});
