// Gives every request of the conformance suite a token: the suite can't be told of one.
import { createRequire } from "node:module";

const { Agent, setGlobalDispatcher } = createRequire(`${process.cwd()}/`)("undici");
const authorization = `Bearer ${process.env.CLIENTS_TOKEN}`;

const withToken = (dispatch) => (options, handler) => {
  const given = options.headers ?? {};
  const headers = Array.isArray(given)
    ? [...given, "authorization", authorization]
    : { ...Object.fromEntries(Object.entries(given)), authorization };
  return dispatch({ ...options, headers }, handler);
};

setGlobalDispatcher(new Agent().compose(withToken));
