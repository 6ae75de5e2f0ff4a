export function Lanes() {
  return null;
}
