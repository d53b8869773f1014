-- fix24f12 to fix12f4, ties to even, saturated: between two streams with valid and ready, and alone without a clock.
--
-- FAULT 1: ties away from zero, 2: `y` is undriven for x = 0x000800, 3: never ready for x = 0x7fffff,
-- 4: a result that waits is overwritten by the next one.
library ieee;
use ieee.std_logic_1164.all;
use ieee.numeric_std.all;

entity round24 is
  generic (FAULT : integer := 0);
  port (x : in signed(23 downto 0); y : out signed(11 downto 0); inexact : out std_logic);
end entity;

architecture rtl of round24 is
begin
  process (x)
    variable kept : signed(16 downto 0);
    variable guard, sticky : boolean;
  begin
    kept := resize(x(23 downto 8), 17);
    guard := x(7) = '1';
    sticky := x(6 downto 0) /= "0000000";
    if FAULT = 1 then
      if guard and (sticky or x(23) = '0') then
        kept := kept + 1;
      end if;
    elsif guard and (sticky or kept(0) = '1') then
      kept := kept + 1;
    end if;
    inexact <= '0';
    if guard or sticky then
      inexact <= '1';
    end if;
    if kept > 2047 then
      y <= to_signed(2047, 12);
      inexact <= '1';
    elsif kept < -2048 then
      y <= to_signed(-2048, 12);
      inexact <= '1';
    else
      y <= kept(11 downto 0);
    end if;
    if FAULT = 2 and x = 16#800# then
      y <= (others => 'U');
    end if;
  end process;
end architecture;

library ieee;
use ieee.std_logic_1164.all;
use ieee.numeric_std.all;

entity round24_stream is
  generic (FAULT : integer := 0);
  port (
    clk       : in  std_logic;
    rst_n     : in  std_logic;
    in_valid  : in  std_logic;
    in_ready  : out std_logic;
    x         : in  signed(23 downto 0);
    out_valid : out std_logic;
    out_ready : in  std_logic;
    y         : out signed(11 downto 0);
    inexact   : out std_logic_vector(0 downto 0)
  );
end entity;

architecture rtl of round24_stream is
  signal rounded : signed(11 downto 0);
  signal lost, full, ready : std_logic;
begin
  unit : entity work.round24 generic map (FAULT => FAULT) port map (x => x, y => rounded, inexact => lost);

  ready <= '0' when FAULT = 3 and x = 16#7fffff# else '1' when FAULT = 4 else not full or out_ready;
  in_ready <= ready;
  out_valid <= full;

  process (clk)
  begin
    if rising_edge(clk) then
      if rst_n = '0' then
        full <= '0';
      elsif ready = '1' then
        full <= in_valid;
        y <= rounded;
        inexact(0) <= lost;
      elsif out_ready = '1' then
        full <= '0';
      end if;
    end if;
  end process;
end architecture;
